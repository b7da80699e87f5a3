"""toy-grammar, compared with a translator that is written from the grammar rules, not from the generator."""

from collections.abc import Callable
from itertools import pairwise

import pytest

from made import case_table

NOUNS = """cat chat m|dog chien m|boy garçon m|king roi m|brother frère m|girl fille f|
queen reine f|sister sœur f|cow vache f|book livre m|garden jardin m|car voiture f|house maison f|
letter lettre f"""
ADJECTIVES = {
    "big": "grand grande grands grandes",
    "small": "petit petite petits petites",
    "good": "bon bonne bons bonnes",
    "happy": "heureux heureuse heureux heureuses",
    "sad": "triste triste tristes tristes",
    "fast": "rapide rapide rapides rapides",
    "slow": "lent lente lents lentes",
    "red": "rouge rouge rouges rouges",
    "calm": "calme calme calmes calmes",
}
VERBS = {
    "love": "aime aimes aime aimons aiment",
    "find": "trouve trouves trouve trouvons trouvent",
    "watch": "regarde regardes regarde regardons regardent",
    "see": "vois vois voit voyons voient",
    "hear": "entends entends entend entendons entendent",
    "eat": "mange manges mange mangeons mangent",
    "walk": "marche marches marche marchons marchent",
    "play": "joue joues joue jouons jouent",
    "run": "cours cours court courons courent",
    "read": "lis lis lit lisons lisent",
    "write": "écris écris écrit écrivons écrivent",
    "go": "vais vas va allons vont",
    "be": "suis es est sommes sont",
}
ARTICLES = {
    "the": "le la les",
    "this": "ce cette ces",
    "these": "ce cette ces",
    "my": "mon ma mes",
    "a": "un une des",
    "some": "un une des",
}
SUBJECTS = {
    "I": ("je", 0),
    "you": ("tu", 1),
    "he": ("il", 2),
    "she": ("elle", 2),
    "we": ("nous", 3),
    "they": ("ils", 4),
}
OBJECTS = {"me": "me", "you": "te", "him": "le", "her": "la", "us": "nous", "them": "les"}
AFTER = {
    "here": "ici",
    "now": "maintenant",
    "tomorrow": "demain",
    "outside": "dehors",
    "often": "souvent",
    "in the morning": "le matin",
    "at night": "la nuit",
}
PREPOSITIONS = {"with": "avec", "behind": "derrière", "under": "sous"}


def noun_table() -> dict[str, tuple[str, int, bool]]:
    nouns = {
        "horse": ("cheval", 0, False),
        "horses": ("chevaux", 1, False),
        "woman": ("femme", 0, True),
        "women": ("femmes", 1, True),
    }
    for english, french, gender in (entry.split() for entry in NOUNS.split("|")):
        nouns[english] = (french, 0, gender == "f")
        nouns[f"{english}s"] = (f"{french}s", 1, gender == "f")
    return nouns


NOUN = noun_table()


class Translator:
    """Translates an English sentence from left to right."""

    def __init__(self, sentence: str) -> None:
        self.remaining = sentence.split()

    def sentence(self) -> str:
        french = []
        while True:
            french += self.clause()
            if not self.remaining:
                return " ".join(french)
            assert self.remaining.pop(0) == "and"
            french.append("et")

    def clause(self) -> list[str]:
        if self.remaining[0] == "hello":
            self.remaining.pop(0)
            return ["bonjour", *self.noun_phrase()[0]]
        if self.remaining[0] in SUBJECTS:
            word = self.remaining.pop(0)
            (pronoun, form), feminine = SUBJECTS[word], word == "she"
            subject = [pronoun]
        else:
            subject, number, feminine = self.noun_phrase()
            form = 4 if number else 2
        verb, negated = self.verb(form)
        pronoun_before = []
        if verb != "be" and self.remaining and self.remaining[0] in OBJECTS:
            pronoun_before = [OBJECTS[self.remaining.pop(0)]]
        french = [
            *subject,
            *(["ne"] if negated else []),
            *pronoun_before,
            VERBS[verb].split()[form],
        ]
        french = self.elided(french) + (["pas"] if negated else [])
        if verb == "be":
            plural = form in (3, 4)
            french.append(ADJECTIVES[self.remaining.pop(0)].split()[2 * plural + feminine])
        elif self.remaining and self.remaining[0] in ARTICLES:
            french += self.noun_phrase()[0]
        if self.remaining and self.remaining[0] in PREPOSITIONS:
            french += [PREPOSITIONS[self.remaining.pop(0)], *self.noun_phrase()[0]]
        return french + self.adverbial()

    def verb(self, form: int) -> tuple[str, bool]:
        word = self.remaining.pop(0)
        if word in ("am", "is", "are"):
            assert word == {0: "am", 2: "is"}.get(form, "are")
            if self.remaining[0] == "not":
                self.remaining.pop(0)
                return "be", True
            return "be", False
        if word in ("do", "does"):
            assert word == ("does" if form == 2 else "do")
            assert self.remaining.pop(0) == "not"
            return self.remaining.pop(0), True
        if form != 2:
            return word, False
        base = {"goes": "go", "watches": "watch"}.get(word, word.removesuffix("s"))
        assert base != word, "the third person lacks its s"
        return base, False

    def noun_phrase(self) -> tuple[list[str], int, bool]:
        determiner = self.remaining.pop(0)
        adjective = self.remaining.pop(0) if self.remaining[0] in ADJECTIVES else None
        noun, number, feminine = NOUN[self.remaining.pop(0)]
        assert (determiner in ("this", "a")) <= (number == 0)
        assert (determiner in ("these", "some")) <= (number == 1)
        article = ARTICLES[determiner].split()[2 if number else feminine]
        if adjective is None:
            return [article, noun], number, feminine
        agreed = ADJECTIVES[adjective].split()[2 * number + feminine]
        if adjective in ("big", "small", "good"):
            return ["de" if article == "des" else article, agreed, noun], number, feminine
        return [article, noun, agreed], number, feminine

    def adverbial(self) -> list[str]:
        for english, french in AFTER.items():
            words = english.split()
            if self.remaining[: len(words)] == words:
                del self.remaining[: len(words)]
                return french.split()
        return []

    @staticmethod
    def elided(french: list[str]) -> list[str]:
        for index, (word, following) in enumerate(pairwise(list(french))):
            if word in ("je", "ne", "me", "te", "le", "la") and following[0] in "aeiouéè":
                french[index] = word[0] + "'"
        return french


def test_every_translation_follows_the_rules_and_permutations_are_in_one_part(
    prepared: Callable,
) -> None:
    splits = prepared("toy-grammar").splits.values()
    for split in splits:
        assert [Translator(source).sentence() for source in split.source_text] == list(
            split.target_text
        )
    bags = [{" ".join(sorted(text.split())) for text in split.source_text} for split in splits]
    assert sum(map(len, bags)) == len(set.union(*bags))


def test_the_pairs_of_a_seed_do_not_change_between_versions(read: Callable) -> None:
    corpus = read("toy-grammar", size=1000)
    assert corpus.data_hash == "2094f63f2a1ea8eebe820f8d9393d75ad01b4345e1a92a44ac0d18807a7af875"
    assert read("toy-grammar", size=1000, seed=2).data_hash != corpus.data_hash


@case_table("seed", [1, 2], default=1)
def test_the_bag_of_words_bound_of_split_iid_is_about_one_half(
    prepared: Callable, seed: int
) -> None:
    assert 0.4 <= prepared("toy-grammar", seed=seed).record["bag_of_words_upper_bound"] <= 0.65


@case_table("split", ["length", "compositional"], default=1)
def test_every_test_word_is_known_from_training(prepared: Callable, split: str) -> None:
    data = prepared("toy-grammar", split=split)
    assert data.record["unk_rate"]["test"] == {"source": 0.0, "target": 0.0}
    assert data.record["leak"] == 0.0
    assert data.record["bag_of_words_upper_bound"] < 0.9


@pytest.mark.slow
def test_split_compositional_tests_combinations_that_train_does_not_contain(
    prepared: Callable,
) -> None:
    splits = prepared("toy-grammar", split="compositional").splits
    plural = {"women": "woman"}

    def combinations(texts: list[str]) -> list[set[tuple[str, str]]]:
        singular = [
            {
                plural.get(word, word.removesuffix("s") if word in NOUN else word)
                for word in text.split()
            }
            for text in texts
        ]
        return [
            {(word, noun) for word in words & set(ADJECTIVES) for noun in words & set(NOUN)}
            for words in singular
        ]

    trained = set().union(
        *combinations(splits["train"].source_text), *combinations(splits["valid"].source_text)
    )
    assert len(splits["test"]) > 500
    assert all(tested - trained for tested in combinations(splits["test"].source_text))
