"""`ips recipes`: list the recipes, or print one."""

from __future__ import annotations

from typing import Annotated

import typer
from typer import Option

from ips.cli.app import app, print_table
from ips.cli.options import Recipe, Scale

recipes = typer.Typer()
app.add_typer(recipes, name="recipes", invoke_without_command=True)


@recipes.callback()
def list_recipes(context: typer.Context) -> None:
    """List the recipes, or print one to save and edit."""
    if context.invoked_subcommand is not None:
        return
    from ips.config_io import read_yaml
    from ips.recipes import recipe_names, recipe_path

    rows = []
    for name in recipe_names():
        values = read_yaml(recipe_path(name))
        rows.append([name, ", ".join(values["scales"]), values["about"]])
    print_table(["recipe", "scales", "about"], rows)


@recipes.command()
def show(
    recipe: Recipe,
    scale: Annotated[
        Scale | None, Option(help="Scale of the recipe; laptop by default, if the recipe has it")
    ] = None,
) -> None:
    """Print every setting with its help: `ips recipes show megapixel-mnist > mine.yaml`."""
    from ips.config_io import describe, parse_config
    from ips.recipes import read_recipe

    values = read_recipe(recipe, scale=scale)
    typer.echo(describe(parse_config(values, source=recipe)), nl=False)
