"""A sampler over a scripted or a stubbed model, and problems to generate answers for."""

import asyncio

from caps.config import RunConfig
from caps.core.types import Case, Problem
from caps.models.scripted import ScriptedModel
from caps.sampling.base import Preset, SamplingTools
from caps.sampling.methods import Independent
from caps.sampling.sampler import Sampler, sample_all
from caps.session.parts import load_templates
from caps.session.resolve import Objects, resolve
from caps.session.session import open_samplers

TEMPLATES = load_templates(shelf="generation")


def problem(name="p", domain="math", **extra):
    return Case(name, Problem.of(f"Question {name}?"), (), domain, extra=extra)


def sampler_of(reply, preset=None, capacity=8):
    """A sampler over a scripted model; the model is `sampler.model`."""
    model = ScriptedModel(reply)
    sampler = Sampler(model, "m", preset or Preset(), TEMPLATES, capacity=lambda: capacity)
    sampler.model = model
    return sampler


def run(method, sampler, problems, n=4, tools=None):
    async def all_of():
        return [
            one async for one in sample_all(problems, method, sampler, n=n, tools=tools or SamplingTools())
        ]

    return asyncio.run(all_of())


def draw(server, problems, n=4, *, preset=None, method=None, **settings):
    """Sample problems at a stub server."""
    config = RunConfig(model="stub", base_url=(server.url,), **settings)
    resolved = resolve(config, objects=Objects(preset=preset or Preset()), generating=True)

    async def all_of():
        async with open_samplers(resolved) as (sampler,):
            return [one async for one in sample_all(problems, method or Independent(), sampler, n=n)]

    return asyncio.run(all_of())


def texts(sampled):
    return [one.text for one in sampled.case.candidates]
