from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('sessions_app', '0002_window_and_title'),
    ]

    operations = [
        migrations.AddField(
            model_name='root',
            name='chosen_reader',
            field=models.CharField(blank=True, default='', max_length=20),
        ),
        migrations.AddField(
            model_name='session',
            name='imported_at',
            field=models.DateTimeField(null=True),
        ),
    ]
