/* A cursor over the rows of a page: one of them is current, has the focus, and is in view. Rows are known by their ids, so
   a row that is drawn again stays the current one. */

const BELOW_BARS = 96;

/* `rows` are the elements to go through, in order; `linkOf` is what has the focus of a row, `lineOf` what must be in view. */
export const makeCursor = ({ rows, linkOf, lineOf = (row) => row, top = BELOW_BARS }) => {
  let current = "";

  const currentRow = () => document.getElementById(current);

  const mark = () => {
    document.querySelectorAll(".is-current").forEach((one) => {
      if (one.id !== current) one.classList.remove("is-current");
    });
    currentRow()?.classList.add("is-current");
  };

  const put = (row) => {
    current = row.id;
    mark();
  };

  const select = (row) => {
    put(row);
    linkOf(row).focus({ preventScroll: true });
    lineOf(row).scrollIntoView({ block: "nearest" });
  };

  const isInView = (row) => row.getBoundingClientRect().bottom > top;

  /* The row next to the current one; without a current one, the first in view. */
  const beside = (by) => {
    const all = rows();
    const at = all.indexOf(currentRow());
    return at < 0 ? all.find(isInView) || all[0] : all[at + by];
  };

  /* A row that a response or a message drew again keeps the cursor and the focus. */
  const regain = (event) => {
    const row = currentRow();
    if (!event.target.contains(row)) return;
    const lost = document.activeElement === document.body;
    mark();
    if (lost) linkOf(row).focus({ preventScroll: true });
  };
  document.addEventListener("htmx:oobAfterSwap", regain);
  /* htmx sets the classes again a moment after a swap. */
  document.addEventListener("htmx:afterSettle", mark);
  document.addEventListener("htmx:wsAfterMessage", mark);

  return { currentRow, mark, put, select, beside };
};
