"""What the commit log is read for.

Read in this order:

audit                     walk the hash chain, compare every record
feed, follower            learn that a log has grown, and iterate over it as it grows
copy                      move a tenant to another engine while writers continue
replay                    make a commit of another store again, with the same digest
"""
