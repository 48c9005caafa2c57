"""Text to terms: what the lexical arm counts and compares.

Compatibility forms are folded, case too; apostrophes join; digits stay; empty
words go; the rest is reduced to stems. Scripts without spaces between words
are cut into overlapping pairs of characters.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import chain

import Stemmer

# What English does that cutting off endings does not see: empty words and irregular forms.


_EMPTY = """
a about above after again against ain aint all also am an and any anybody anyone anything anyway
are aren arent as at aw be because been before being below between both but by can cannot cant
could couldn couldnt did didn didnt do does doesn doesnt doing don done dont down during each
either else ever every few for from further gonna gotta had hadn hadnt has hasn hasnt have haven
havent having he hed her here heres hers herself hes hey hi him himself his how hows i if im in
into is isn isnt it itd itll its itself ive just kinda lot lots many maybe me might more most much
must my myself neither no nor not now of off oh ok okay on once only or other our ours ourselves
out over own perhaps quite rather really same shall shan shant she shes should shouldn shouldnt so
some somebody someone something sometimes such than that thats the their theirs them themselves
then there theres these they theyd theyll theyre theyve this those though through to too u under
until up upon us very wanna was wasn wasnt we well were weren werent weve what whatever whats when
whenever where wheres whether which while who whom whos whose why will with within without wont
would wouldn wouldnt wow ya yeah yep yes yet you youd youll your youre yours yourself yourselves
youve
"""

#: Words that say nothing about what a text is about. Written without apostrophes.
STOP_WORDS = frozenset(_EMPTY.split())

_FORMS = """
arise arose arisen; awake awoke awoken; bear bore borne; beat beaten; become became; begin began
begun; bend bent; bet; bind bound; bite bit bitten; bleed bled; blow blew blown; break broke
broken; breed bred; bring brought; build built; burn burnt; buy bought; catch caught; choose chose
chosen; come came; creep crept; deal dealt; dig dug; draw drew drawn; dream dreamt; drink drank
drunk; drive drove driven; eat ate eaten; fall fell fallen; feed fed; feel felt; fight fought; find
found; flee fled; fly flew flown; forbid forbade forbidden; forget forgot forgotten; forgive
forgave forgiven; freeze froze frozen; get got gotten; give gave given; go went gone goes; grow
grew grown; hang hung; hear heard; hide hid hidden; hold held; keep kept; kneel knelt; know knew
known; lay laid; lead led; lean leant; leap leapt; learn learnt; leave left; lend lent; light lit;
lose lost; make made; mean meant; meet met; pay paid; prove proven; ride rode ridden; ring rang
rung; rise rose risen; run ran; say said; see saw seen; seek sought; sell sold; send sent; sew
sewn; shake shook shaken; shine shone; shoot shot; show shown; shrink shrank shrunk; sing sang
sung; sink sank sunk; sit sat; sleep slept; slide slid; speak spoke spoken; spell spelt; spend
spent; spill spilt; spin spun; spread; spring sprang sprung; stand stood; steal stole stolen;
stick stuck; sting stung; strike struck; swear swore sworn; sweep swept; swell swollen; swim swam
swum; swing swung; take took taken; teach taught; tear tore torn; tell told; think thought; throw
threw thrown; understand understood; wake woke woken; wear wore worn; weave wove woven; weep wept;
win won; wind wound; write wrote written; child children kid kids; foot feet; goose geese; man men;
mouse mice; person people; tooth teeth; woman women; wife wives; knife knives; leaf
leaves; half halves; shelf shelves; mother mom moms mum mommy mama; father dad dads daddy papa;
grandmother grandma granny; grandfather grandpa; television tv tvs; photo photos photograph
photographs picture pictures pic pics; bicycle bicycles bike bikes; cat kitty; dog doggo;
good better best; bad worse worst
"""

#: From an irregular form to the word it is a form of; a few everyday names of one thing as well.
IRREGULAR = {
    form: forms[0]
    for group in _FORMS.split(";")
    if len(forms := group.split()) > 1
    for form in forms[1:]
}


#: Counts up with every change of what a text becomes; an index made by another is made anew.
ANALYSIS_VERSION = 1

_MOST_TERM = 64
_WORD = re.compile(r"[^\W_]+(?:['’ʼ＇][^\W_]+)*")
#: For ASCII, which most text is: what is in no word is a space.
_SPACED = {code: " " for code in range(128) if not chr(code).isalnum() and chr(code) != "'"}
_APOSTROPHES = str.maketrans("", "", "'’ʼ＇")
_CONTRACTED = re.compile(r"(?:n['’ʼ＇]t|['’ʼ＇](?:s|d|m|ll|re|ve))$")
_GROUPED = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
# Han, kana, Thai, Lao, Khmer, Burmese: no spaces between words.
_UNSPACED = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]+")
_STEMS_REMEMBERED = 65_536


def folded(text: str) -> str:
    """The text with compatibility forms and case folded."""
    # ASCII, which most text is, has no other forms.
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())


def words(text: str) -> list[str]:
    """The words as they stand, folded; apostrophes still in."""
    plain = folded(text)
    if "," in plain:
        plain = _GROUPED.sub("", plain)
    if plain.isascii():
        # The same words in less than half the time.
        spaced = plain.translate(_SPACED)
        if "'" not in spaced or not _is_loose(spaced):
            return spaced.split()
    return _WORD.findall(plain)


def _is_loose(spaced: str) -> bool:
    """Whether an apostrophe stands elsewhere than between two signs of a word."""
    return "' " in spaced or " '" in spaced or "''" in spaced or "'" in (spaced[0], spaced[-1])


def terms(text: str) -> list[str]:
    """The terms of a text, in order, without empty words."""
    return terms_of(words(text))


def terms_of(heard: Iterable[str]) -> list[str]:
    """The terms of words, in order, without empty ones."""
    return list(chain.from_iterable(map(_terms_of, heard)))


@lru_cache(_STEMS_REMEMBERED)
def _terms_of(word: str) -> tuple[str, ...]:
    if not word.isascii() and _UNSPACED.search(word):
        return tuple(_pieces(word))
    plain = word
    if "'" in word or not word.isascii():
        # "he'll" is empty as "he" is, "won't" as a whole; "won" and "hell" are not.
        plain = _CONTRACTED.sub("", word).translate(_APOSTROPHES)
        word = word.translate(_APOSTROPHES)
    if plain in STOP_WORDS or word in STOP_WORDS:
        return ()
    return (_stem(IRREGULAR.get(plain, plain)[:_MOST_TERM]),)


def is_lone_sign(term: str) -> bool:
    """Whether a term is one sign of a script that is cut into pairs: it is in the pairs then."""
    return len(term) == 1 and _UNSPACED.match(term) is not None


def _pieces(word: str) -> Iterator[str]:
    end = 0
    for run in _UNSPACED.finditer(word):
        if run.start() > end:
            yield from _terms_of(word[end : run.start()])
        signs = run.group()
        yield from (signs[i : i + 2] for i in range(max(1, len(signs) - 1)))
        end = run.end()
    if end < len(word):
        yield from _terms_of(word[end:])


def _stem(word: str) -> str:
    # A stemmer keeps a buffer of its own and may not be shared by threads;
    # making one is cheap and happens once for a word.
    stemmed: str = Stemmer.Stemmer("english", 0).stemWord(word)
    return stemmed
