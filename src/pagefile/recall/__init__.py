"""Recall: finding what was remembered, by its words, its meaning, who said it and when."""
