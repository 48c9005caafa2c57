"""What English does that cutting off endings does not see: empty words and irregular forms."""

from __future__ import annotations

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
    form: words[0]
    for group in _FORMS.split(";")
    if len(words := group.split()) > 1
    for form in words[1:]
}
