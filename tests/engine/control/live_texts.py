"""Prompts whose continuation is known, and polling."""

import random
import time

LETTERS = "abcdefghijklmnopqrstuvwxyz"


def endless(seed, length=150):
    """A text in which no four characters come twice: said once and begun again, the copier goes on with it."""
    source, text, grams = random.Random(seed), "", set()
    while len(text) < length:
        letter = source.choice(LETTERS)
        gram = text[-3:] + letter
        if gram not in grams:
            grams.add(gram)
            text += letter
    return text


def prompt_and_answer(seed, start=40, tokens=60):
    """A prompt, and the `tokens` characters that must follow it."""
    text = endless(seed)
    return text + text[:start], text[start : start + tokens]


def until(condition, what, seconds=20):
    """Poll a condition with a deadline; returns what it gave."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"still waiting for {what}"
        time.sleep(0.005)
    return found
