// A table that is wider than its page reads as a list: each row below the other, each cell with its column's name.
function stack() {
  for (const table of document.querySelectorAll("article table")) {
    table.classList.remove("stacked");
    const names = [...table.querySelectorAll("thead th")].map((cell) => cell.textContent);
    table.dataset.columns = names.join(", ");
    for (const row of table.querySelectorAll("tbody tr"))
      [...row.cells].forEach((cell, i) => (cell.dataset.column = names[i] ?? ""));
    const room = table.closest(".pst-scrollable-table-container, article").clientWidth;
    table.classList.toggle("stacked", window.innerWidth < 720 && table.scrollWidth > room);
  }
}
addEventListener("DOMContentLoaded", stack);
addEventListener("resize", stack);
