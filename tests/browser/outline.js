/* What can be told of a page without looking at it: its titles, its next step, its names and labels, its width. */
() => {
  const seen = (one) => one.checkVisibility({ visibilityProperty: true });
  const all = (selector) => [...document.querySelectorAll(selector)].filter(seen);
  const begin = (one) => one.outerHTML.slice(0, 120);
  const named = (one) =>
    [one.getAttribute("aria-label"), one.getAttribute("alt"), one.querySelector("title")?.textContent]
      .some((name) => name?.trim());
  const labelled = (one) => named(one) || [...(one.labels || [])].some((label) => label.textContent.trim());
  const cut = (one) => one.scrollWidth > one.clientWidth + 1 && getComputedStyle(one).overflowX !== "visible" && !one.closest(".visually-hidden");
  const within = (one) => [...one.querySelectorAll("*"), one].some((part) => cut(part));
  const beyond = (one) => one.getBoundingClientRect().right > one.parentElement.getBoundingClientRect().right + 1;
  const ids = [...document.querySelectorAll("[id]")].map((one) => one.id);
  return {
    width: document.scrollingElement.scrollWidth - window.innerWidth,
    titles: all("h1").length || all("main p.title").length,
    ink: all("main .button--primary").length,
    unlabelled: all("input:not([type=hidden]), select, textarea").filter((one) => !labelled(one)).map(begin),
    unnamed: all("img, svg[role=img]").filter((one) => !named(one)).map(begin),
    empty: all("a[href], button, summary").filter((one) => !one.textContent.trim() && !named(one)).map(begin),
    clipped: all(".legend, .tabs, .stats, dt, th, .label.legend__note")
      .filter((one) => within(one) || (one.matches(".legend") && beyond(one)))
      .map(begin),
    twice: ids.filter((id, at) => ids.indexOf(id) !== at),
  };
}
