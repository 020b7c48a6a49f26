"""`ips recipes`: what can be trained by name, and what is in it."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from ips.cli.app import app, out, told
from ips.cli.train import Scale

recipes = typer.Typer(help="List the recipes, or show one to save and edit.")
app.add_typer(recipes, name="recipes", invoke_without_command=True)


@recipes.callback()
@told
def list_recipes(context: typer.Context) -> None:
    """List the recipes, or show one to save and edit."""
    if context.invoked_subcommand is not None:
        return
    from ips.config import read_yaml
    from ips.recipes import recipe_names, recipe_path

    table = Table("recipe", "scales", "about")
    for name in recipe_names():
        values = read_yaml(recipe_path(name))
        table.add_row(name, ", ".join(values["scales"]), values["about"])
    out.print(table)


@recipes.command()
@told
def show(
    recipe: Annotated[str, typer.Argument(help="name of a recipe, or a YAML file")],
    scale: Annotated[Scale | None, typer.Option(help="laptop (default) or paper")] = None,
) -> None:
    """Print every setting with its help: `ips recipes show megapixel-mnist > mine.yaml`."""
    from ips.config import describe, parse_config
    from ips.recipes import read_recipe

    values = read_recipe(recipe, scale=scale)
    typer.echo(describe(parse_config(values, source=recipe)), nl=False)
