from experiment_file import TABLES
from headtohead.schema import experiment_file, run_config
from headtohead.schema.run_config import (
    EntryConfig,
    ModelConfig,
    PerRole,
    PerSide,
    RunConfig,
)
from headtohead.schema.sections import ConfigSection
from headtohead_notebooks.quirks import NotebookOptions


def test_every_section_of_the_schema_has_its_table():
    sections = {
        section
        for module in (experiment_file, run_config)
        for section in vars(module).values()
        if isinstance(section, type)
        and issubclass(section, ConfigSection)
        and section.__module__ != "headtohead.schema.sections"
    }
    without_table = {EntryConfig, PerRole, PerSide, RunConfig, ModelConfig}
    assert (sections - without_table) | {NotebookOptions} == set(TABLES.values())


def test_every_field_has_a_description():
    for name, model in TABLES.items():
        for field, info in model.model_fields.items():
            assert info.description, f"{name}.{field}"
