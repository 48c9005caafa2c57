"""Lists of words that rules need in order to be sure, and the predicates they state."""

from __future__ import annotations

import re

# Word lists as they are read best: running text.


def listed(text: str) -> list[str]:
    """The words of a text, in order."""
    return text.split()


_COUNTRIES = """
    afghanistan albania algeria argentina armenia australia austria bangladesh belgium bolivia
    brazil bulgaria cambodia cameroon canada chile china colombia croatia cuba cyprus czechia
    denmark ecuador egypt england estonia ethiopia finland france georgia germany ghana greece
    hungary iceland india indonesia iran iraq ireland israel italy jamaica japan jordan kenya
    latvia lebanon lithuania luxembourg malaysia malta mexico morocco nepal netherlands nigeria
    norway pakistan panama peru philippines poland portugal qatar romania russia scotland senegal
    serbia singapore slovakia slovenia spain sweden switzerland taiwan thailand tunisia turkey
    uganda ukraine uruguay venezuela vietnam wales zambia zimbabwe
"""
_CITIES = """
    amsterdam athens atlanta auckland austin bangalore bangkok barcelona beijing berlin birmingham
    bogota boston bristol brisbane brussels bucharest budapest cairo calgary chennai chicago
    copenhagen dallas delhi denver detroit dubai dublin edinburgh florence frankfurt geneva glasgow
    hamburg hanoi helsinki houston istanbul jakarta johannesburg karachi kyoto lagos leeds lima
    lisbon liverpool london lyon madrid manchester manila melbourne miami milan montreal moscow
    mumbai munich nairobi naples osaka oslo ottawa oxford paris perth philadelphia phoenix portland
    porto prague rome rotterdam seattle seoul shanghai stockholm sydney tokyo toronto turin
    vancouver venice vienna warsaw wellington zurich
"""
_STATES = """
    alabama alaska arizona arkansas california colorado connecticut delaware florida hawaii idaho
    illinois indiana iowa kansas kentucky louisiana maine maryland massachusetts michigan minnesota
    mississippi missouri montana nebraska nevada ohio oklahoma oregon pennsylvania tennessee texas
    utah vermont virginia washington wisconsin wyoming ontario quebec alberta bavaria catalonia
    tuscany sicily bali queensland tasmania
"""
PLACES = frozenset(_COUNTRIES.split()) | frozenset(_STATES.split()) | frozenset(_CITIES.split())
PLACES |= {"new york", "los angeles", "san francisco", "hong kong", "new zealand", "south korea"}
PLACES |= {"new jersey", "new mexico", "north carolina", "south carolina", "north dakota"}
PLACES |= {"south dakota", "west virginia", "rhode island", "new hampshire", "bora bora"}
PLACES |= {"south africa", "mexico city", "the netherlands", "the uk", "the us", "the usa"}

#: Where one can live without a name for it; a dwelling is no place.
PLACE_NOUNS = frozenset(
    listed(
        """
    city town village suburb countryside neighborhood neighbourhood district suburbs island
    farm van boat
    """
    )
)
DWELLINGS = frozenset(
    listed(
        """
    apartment flat house cottage farm cabin van boat dorm studio condo loft trailer bungalow
    room houseboat
    """
    )
)
#: Named like places, and on no map.
NOWHERE = frozenset(
    listed(
        """
    narnia atlantis hogwarts mordor westeros wonderland neverland hell heaven gotham
    """
    )
)

LANGUAGES = frozenset(
    listed(
        """
    english french spanish portuguese german dutch italian russian ukrainian polish czech
    slovak hungarian romanian bulgarian greek turkish arabic hebrew persian farsi hindi urdu
    bengali punjabi tamil telugu kannada malayalam marathi gujarati mandarin cantonese
    chinese japanese korean vietnamese thai indonesian malay tagalog filipino swahili
    amharic yoruba igbo hausa zulu afrikaans swedish norwegian danish finnish icelandic
    estonian latvian lithuanian irish welsh gaelic basque catalan galician croatian serbian
    bosnian slovenian albanian armenian georgian latin esperanto
    """
    )
)

NATIONALITIES = frozenset(
    listed(
        """
    american british english irish scottish welsh canadian australian french german italian
    spanish portuguese dutch belgian swiss austrian swedish norwegian danish finnish polish
    czech hungarian romanian bulgarian greek turkish russian ukrainian indian pakistani
    bangladeshi chinese japanese korean vietnamese thai indonesian filipino malaysian
    mexican brazilian argentinian chilean colombian peruvian venezuelan cuban nigerian
    ghanaian kenyan ethiopian egyptian moroccan tunisian lebanese syrian iranian iraqi
    israeli croatian serbian
    """
    )
)

RELIGIONS = frozenset(
    listed(
        """
    catholic muslim jewish hindu buddhist sikh christian protestant atheist agnostic mormon
    quaker
    """
    )
)

_JOB_HEADS = """
    accountant actor actress actuary administrator advisor adviser analyst anesthesiologist
    animator architect archivist artist assistant astronomer attorney auditor author baker banker
    barber barista bartender beekeeper biologist blacksmith bookkeeper botanist bricklayer broker
    builder butcher captain cardiologist caregiver carpenter cartographer cashier chef chemist
    chiropractor cleaner clerk coach composer conductor consultant contractor cook coordinator
    copywriter counselor courier curator dancer dentist dermatologist designer developer
    dietitian diplomat director dispatcher doctor driver economist editor electrician engineer
    entrepreneur epidemiologist executive farmer firefighter fisherman florist gardener geologist
    geographer goldsmith guard hairdresser handyman historian illustrator inspector instructor
    interpreter intern investigator janitor jeweler journalist judge landscaper lawyer lecturer
    librarian linguist locksmith machinist maid manager mason mathematician mechanic meteorologist
    midwife miner model musician nanny neurologist neuroscientist novelist nurse nutritionist
    officer operator optician optometrist orthodontist painter paralegal paramedic pathologist
    pediatrician pharmacist philosopher photographer physician physicist physiotherapist pilot
    planner plumber poet policeman politician postdoc potter principal producer professor
    programmer psychiatrist psychologist publicist radiologist realtor receptionist recruiter
    representative reporter researcher roofer sailor salesman salesperson saleswoman scientist
    sculptor seamstress secretary shepherd singer solicitor sommelier statistician stewardess
    strategist superintendent surgeon surveyor tailor teacher technician tester therapist
    toxicologist
    trader trainer translator treasurer tutor undertaker urologist veterinarian vet videographer
    violinist waiter waitress warden watchmaker welder writer zookeeper zoologist freelancer
    apprentice cto ceo cfo coo
"""
JOB_HEADS = frozenset(_JOB_HEADS.split())
#: "head of marketing", "director of operations".
JOB_LEADS = frozenset(
    listed(
        """
    head director vp president founder co-founder cofounder owner chief
    """
    )
)
JOB_LEADS |= {"vice-president", "chair", "dean", "member", "partner"}

FIELDS = frozenset(
    listed(
        """
    finance marketing sales healthcare education logistics construction advertising banking
    insurance retail hospitality publishing engineering consulting it tech hr journalism law
    agriculture pharma biotech robotics manufacturing tourism entertainment accounting
    cybersecurity recruiting architecture academia research customer-service government
    """
    )
)
BUSINESSES = frozenset(
    listed(
        """
    bakery shop store restaurant cafe café company business startup farm gallery studio
    agency bookshop bookstore blog podcast newsletter clinic practice school salon gym hotel
    hostel brewery winery garage charity consultancy foundation bar pub
    """
    )
)

_PETS = (
    "golden retriever|border collie|labrador|german shepherd|french bulldog|maine coon|poodle|"
    "beagle|dachshund|corgi|husky|terrier|bulldog|chihuahua|guinea pig|pony|"
    "dog|cat|puppy|kitten|rabbit|bunny|hamster|parrot|budgie|canary|cockatiel|tortoise|turtle|"
    "horse|ferret|gecko|snake|lizard|iguana|goldfish|gerbil|chinchilla|hedgehog|goat|chicken|retriever"
)
PET = _PETS
PETS = rf"(?:{_PETS}|puppies|ponies|huskies|bunnies|canaries)"

CONDITIONS = (
    r"(?:asthma|type [12] diabetes|diabetes|adhd|add|autism|epilepsy|hypertension|"
    r"high blood pressure|low blood pressure|arthritis|rheumatoid arthritis|celiac disease|"
    r"coeliac disease|crohn's disease|crohn's|ibs|eczema|psoriasis|migraines|depression|anxiety|"
    r"bipolar disorder|insomnia|sleep apnea|anemia|anaemia|hypothyroidism|hyperthyroidism|"
    r"endometriosis|pcos|fibromyalgia|lupus|multiple sclerosis|osteoporosis|gout|tinnitus|"
    r"glaucoma|dyslexia|scoliosis|hay fever|rosacea|acid reflux|gerd|hiv|copd|ptsd|ocd|"
    r"a heart condition|a bad back|hearing loss|chronic \w+(?: \w+)?)"
)
CONDITION_ADJECTIVES = {
    "diabetic": "diabetes",
    "asthmatic": "asthma",
    "epileptic": "epilepsy",
    "dyslexic": "dyslexia",
    "autistic": "autism",
    "celiac": "celiac disease",
    "colorblind": "color blindness",
    "colourblind": "color blindness",
    "color-blind": "color blindness",
    "hypertensive": "hypertension",
    "anemic": "anemia",
}
DIETS = (
    r"(?:vegetarian|vegan|pescatarian|pescetarian|flexitarian|lacto-vegetarian|keto|kosher|halal|"
    r"paleo|gluten-free|gluten free|low-carb|low carb|low-sodium|dairy-free|mediterranean|"
    r"ketogenic)"
)
MEDICINE = (
    r"(?:\w*(?:formin|pril|statin|olol|cillin|profen|prazole|mycin|sartan|oxetine|pram|traline|"
    r"thyroxine|zepam|zolam|dipine|gliptin|triptan)|insulin|aspirin|paracetamol|acetaminophen|"
    r"lithium|prednisone|antihistamines|antidepressants|blood thinners|beta blockers|warfarin|"
    r"xarelto|eliquis|adderall|ritalin|concerta|melatonin|vitamin \w+|birth control|statins|"
    r"ozempic)"
)
PLAYED = (
    r"(?:(?:acoustic |electric |bass |classical )?guitar|piano|violin|viola|cello|drums|flute|"
    r"clarinet|saxophone|sax|trumpet|trombone|harp|ukulele|banjo|accordion|harmonica|bass|keyboard|"
    r"organ|oboe|tennis|football|soccer|basketball|volleyball|baseball|rugby|cricket|golf|hockey|"
    r"badminton|squash|padel|table tennis|ping pong|handball|chess|poker|bridge|go|darts|pool|"
    r"water polo|ultimate frisbee|lacrosse|softball|pickleball|dungeons and dragons|d&d|minecraft|"
    r"board games|video games|world of warcraft|league of legends)"
)
DURABLES = (
    r"(?:car|house|home|apartment|flat|condo|motorcycle|motorbike|bike|bicycle|e-bike|boat|sailboat|"
    r"yacht|van|camper|truck|piano|guitar|violin|telescope|camera|laptop|macbook|iphone|ipad|kindle|"
    r"3d printer|drone|farm|cottage|cabin|garden|pool|sewing machine|espresso machine|gun|tablet|"
    r"record player|vinyl collection|restaurant|shop|store|company|business)s?"
)

SOFTWARE = frozenset(
    listed(
        """
    linux windows mac macos ubuntu debian fedora android ios iphone postgres mysql sqlite
    mongodb
        python rust golang java kotlin typescript javascript react vue angular svelte django flask
        rails aws azure gcp kubernetes docker github gitlab gmail outlook notion slack teams chrome
    firefox safari vim neovim emacs vscode excel word powerpoint jira zoom discord spotify
    netflix
        """
    )
)
#: Occupations that programs have too.
MACHINES = frozenset(
    listed(
        """
        broker driver model operator planner producer inspector guard conductor editor dispatcher
        assistant translator interpreter designer builder manager controller tester trainer
        """
    )
)

#: Employers that stand among what is nobody's name.
COMPANIES = frozenset(listed("google apple microsoft amazon facebook github openai"))
#: What people leave that has a capital and employs nobody of them.
LEFT_OTHERWISE = frozenset(
    listed(
        """
    islam christianity catholicism judaism buddhism hinduism mormonism earth europe asia
    africa america heathrow disneyland ikea walmart starbucks mcdonald's burning-man whatsapp
    instagram tiktok reddit telegram
    """
    )
)
LEARNED_AT = frozenset(listed("school university college academy church kindergarten party"))
GIVEN_NAMES = frozenset(
    listed(
        """
    adam alan alex alice amanda amy ana andrea andrew angela anna anne anthony ben bob brian
    carl carla carlos carol catherine charles charlie chris christian christine claire clara
    daniel dave david diana diego donna dylan ed elena eli eliza elizabeth ella emily emma
    eric erik eva evan frank fred george grace greg hannah harry helen henry ian isabel jack
    jacob jake james jane janet jason jean jeff jen jenny jessica jim joan joe john jon jordan
    jose joseph josh juan julia julie karen kate kathy katie keith kelly kevin kim kyle laura
    lauren leo liam lily linda lisa louis lucas lucy luis luke marco marcus maria marie mark
    martin mary matt max megan mia michael michelle mike nancy natalie nathan nick nicole nina
    noah oliver olivia oscar pamela patricia patrick paul pedro peter phil rachel rebecca
    richard rob robert roger rosa ruth ryan sam samantha sandra sara sarah scott sean simon
    sofia sophie stefan stephen steve steven susan ted teresa thomas tim tina tom tony tyler
    victor victoria walter wendy will william zoe
    """
    )
)

#: What begins sentences or stands with a capital and is nobody's name.
NOT_NAMES = frozenset(
    listed(
        """
    i a an the this that these those it he she they we you my our your his her its their
    there here who what where when why how which whose everybody everyone nobody someone
    somebody anybody anyone nothing something everything anything all some most many few
    each every both either neither one two three no not yes yeah ok okay oh well so and or
    but if then because since while although though as at by for from in on of to up with
    without about after before during until please thanks thank hi hello hey dear sorry sure
    great good nice cool fine right wrong maybe perhaps actually honestly basically
    currently recently today yesterday tomorrow now tonight once also just only even still
    already always never sometimes usually monday tuesday wednesday thursday friday saturday
    sunday january february march april june july august september october november december
    spring summer autumn winter christmas easter done ready happy sad tired hungry back home
    late early busy glad afraid interested excited lost stuck confused new old let lets can
    could would should will do does did is are was were be been have has had sounds looks
    seems feels tastes smells moments events themes things family nature
    have has had sounds looks seems feels moments events themes things family nature get got make
    made go going see seen use used try give take work works love alexa siri cortana gemini
    copilot python java javascript
    typescript rust docker linux windows google apple microsoft amazon facebook github
    openai chatgpt claude react excel postgres sqlite redis kubernetes god lord internet web
    app server client code life music love people dogs cats kids children men women students
    users customers english french german spanish american british
    """
    )
)


# The predicates that extractors use, and how many objects each may have at a time.


#: One object at a time: a new one ends the one before.
SINGLE = frozenset(
    listed(
        """
    has_name nickname pronouns age birthday birth_year born_in lives_in comes_from
    grew_up_in works_at job_title employment_status marital_status married_to engaged_to
    has_partner has_mother has_father has_boss follows_diet blood_type native_language
    timezone email phone address height weight shoe_size zodiac_sign religion nationality
    studies_at
    """
    )
)

#: Several objects at a time: a new one stands beside the others.
MULTI = frozenset(
    listed(
        """
    works_in runs likes dislikes prefers allergic_to intolerant_to does_not_eat
    does_not_drink has_condition takes_medication owns drives has_pet has_family speaks
    learning studies studied graduated_from has_degree plays hobby habit plans_to has_sister
    has_brother has_sibling has_son has_daughter has_child has_friend has_colleague
    has_roommate has_neighbor has_grandmother has_grandfather has_uncle has_aunt has_cousin
    has_niece has_nephew has_grandchild has_doctor has_teacher has_client
        has_parent afraid_of is_a website
    """
    )
)

_FAVORITE = "favorite_"


def favorite(thing: str) -> str:
    """The predicate of somebody's favourite thing of a kind."""
    return _FAVORITE + "_".join(thing.split())


def canonical(predicate: str) -> str:
    """One spelling: `livesIn`, `Lives In` and `lives-in` are `lives_in`."""
    split = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", predicate.strip())
    return re.sub(r"[\s\-_]+", "_", split).lower().strip("_")
