from django.db import migrations

OF_SESSIONS = ("compaction_app_compactioncost", "compaction_app_hindsightcheck", "compaction_app_measuredsession")
SESSION = 'REFERENCES "sessions_app_session" ("id") '


def delete_with_the_session(apps, schema_editor):
    """Let SQLite delete the rows of a session that is deleted: without `lab_app` no model does."""
    del apps
    with schema_editor.connection.cursor() as cursor:
        for table in OF_SESSIONS:
            made = "SELECT sql FROM sqlite_master WHERE tbl_name = %s AND sql IS NOT NULL ORDER BY type = 'table' DESC"
            (create,), *indexes = cursor.execute(made, [table]).fetchall()
            new = create.replace(f'"{table}"', f'"new__{table}"', 1).replace(SESSION, f"{SESSION}ON DELETE CASCADE ")
            cursor.execute(new)
            cursor.execute(f'INSERT INTO "new__{table}" SELECT * FROM "{table}"')
            cursor.execute(f'DROP TABLE "{table}"')
            cursor.execute(f'ALTER TABLE "new__{table}" RENAME TO "{table}"')
            for (index,) in indexes:
                cursor.execute(index)


class Migration(migrations.Migration):
    """The tables of the lab become those of `lab_app`, under the names that they have."""

    dependencies = [("compaction_app", "0028_plans_seen")]

    operations = [
        migrations.RunPython(delete_with_the_session, migrations.RunPython.noop),
        migrations.SeparateDatabaseAndState(
            state_operations=[
                migrations.DeleteModel("MeasuredSession"),
                migrations.DeleteModel("Experiment"),
                migrations.DeleteModel("CompactionCost"),
                migrations.DeleteModel("HindsightCheck"),
            ]
        ),
    ]
