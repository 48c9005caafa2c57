"""Text and questions, analysed: terms, stems, dates and time words; and the inverted index.

Read in this order: analysis, english, inverted_index, dates, question.
"""
