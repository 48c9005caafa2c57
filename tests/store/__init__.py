"""One write path: values, batches, groups, following, copying, the awaited face."""
