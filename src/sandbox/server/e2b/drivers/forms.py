"""Runs inside, once in each Python context: also shows figures and tables as data, like E2B's own template.

Figures need `e2b-charts` (PyPI) inside. Leaves no name behind.
"""


def _add_forms():
    def chart(figure, **_):
        from e2b_charts import chart_figure_to_dict

        return {"e2b/chart": chart_figure_to_dict(figure)}

    def table(frame, **_):
        import json

        # Through JSON, because a column may hold values that only pandas can convert, such as times.
        columns = json.loads(frame.to_json(orient="split", date_format="iso"))
        return {"e2b/data": {str(name): [row[i] for row in columns["data"]] for i, name in enumerate(columns["columns"])}}

    def quiet(maker):
        def made(value, *_, **__):
            try:
                return maker(value)
            except Exception:  # it is shown in its other forms
                return {}

        return made

    names = (("matplotlib.figure", "Figure", chart), ("pandas", "DataFrame", table))
    names += (("pandas.core.frame", "DataFrame", table),)
    try:
        formatter = get_ipython().display_formatter.mimebundle_formatter  # noqa: F821
    except NameError:
        for module, name, maker in names:
            display.makers[module, name] = quiet(maker)  # noqa: F821
    else:
        for module, name, maker in names:
            formatter.for_type_by_name(module, name, quiet(maker))


_add_forms()
del _add_forms
