/* Lists active markup and control characters that a transcript brought onto a page; empty if all of it is plain text. */
() => {
  const steering =
    /[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]/;
  const ours = {
    script: "[src^='/static/']",
    form: "[action^='/'], [action='decide'], [method=dialog]",
  };
  const found = [];
  const begin = (one) => one.outerHTML.slice(0, 200);
  const look = (text, where) => {
    const at = text.search(steering);
    if (at >= 0) found.push(`steering in ${where}: ${JSON.stringify(text.slice(Math.max(0, at - 30), at + 30))}`);
  };
  if (window.hit !== undefined) found.push(`script ran: ${window.hit}`);
  for (const one of document.querySelectorAll("img, iframe, style, base, object, embed, script, form")) {
    const allowed = ours[one.localName];
    if (!allowed || !one.matches(allowed)) found.push(`markup: ${begin(one)}`);
  }
  for (const link of document.querySelectorAll("a[href]"))
    if (link.origin !== location.origin) found.push(`link elsewhere: ${link.href}`);
  for (const one of document.querySelectorAll("*"))
    for (const { name, value } of one.attributes) {
      if (/^on|^style$|^autofocus$/i.test(name)) found.push(`attribute: ${begin(one)}`);
      look(value, name);
    }
  look(document.documentElement.textContent, "the text");
  if (!document.querySelector("main")) found.push("the page has no main");
  return found;
}
