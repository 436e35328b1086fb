from django.db import migrations


def name_origins(apps, schema_editor):
    """The sessions that earlier versions made of others, with those."""
    Session = apps.get_model("sessions_app", "Session")
    made = {}
    for model in ("Compaction", "Undo"):
        rows = apps.get_model("compaction_app", model).objects.exclude(created="")
        for created, root, below in rows.values_list("created", "session__root__path", "session__relative_path"):
            made[created] = f"{root}/{below}"
    forks = apps.get_model("compaction_app", "AuditEntry").objects.filter(action="fork")
    made |= dict(forks.exclude(new_file="").values_list("new_file", "session"))
    if not made:
        return
    for key, root, below in Session.objects.values_list("pk", "root__path", "relative_path"):
        if f"{root}/{below}" in made:
            Session.objects.filter(pk=key).update(made_from=made[f"{root}/{below}"])


class Migration(migrations.Migration):

    dependencies = [
        ("compaction_app", "0026_handshakes"),
        ("sessions_app", "0018_made_from"),
    ]

    operations = [migrations.RunPython(name_origins, migrations.RunPython.noop)]
