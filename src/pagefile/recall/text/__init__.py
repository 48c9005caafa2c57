"""Text and questions, analysed: terms, stems, dates and time words; and the inverted index.

Read in this order: analysis, inverted_index, dates, question.
"""
