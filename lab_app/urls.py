from django.urls import path, re_path

from sessions_app.models import SESSION_ROUTE

from .hindsight import views as hindsight_views
from .lab import views as lab_views

app_name = "lab"
urlpatterns = [
    path("insights/benchmark", lab_views.experiments, name="experiments"),
    path("insights/benchmark/new", lab_views.new_experiment, name="new_experiment"),
    path("insights/benchmark/<int:experiment>", lab_views.experiment, name="experiment"),
    path("insights/benchmark/<int:experiment>/stop", lab_views.stop, name="stop_experiment"),
    path("insights/benchmark/<int:experiment>/delete", lab_views.delete, name="delete_experiment"),
    path("insights/benchmark/<int:experiment>.csv", lab_views.export_csv, name="experiment_csv"),
    path("insights/benchmark/<int:experiment>.json", lab_views.export_json, name="experiment_json"),
    path("insights/costs", hindsight_views.overview, name="hindsight"),
    re_path(SESSION_ROUTE + "/hindsight$", hindsight_views.session, name="session_hindsight"),
]
