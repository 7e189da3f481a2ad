// ---- tables: sorted by a click on a heading, copied as CSV, Markdown or LaTeX

const numberIn = (text) => {
  const inverse = /^1 \/ ([\d.]+)x/.exec(text);
  if (inverse) return 1 / Number(inverse[1]);
  const found = /-?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?/.exec(text);
  return found ? Number(found[0].replaceAll(",", "")) : NaN;
};

const sortBy = (table, at, descending) => {
  const body = table.tBodies[0];
  const rows = [...body.rows].map((row) => [row.cells[at]?.textContent.trim() ?? "", row]);
  const isName = body.rows[0]?.cells[at]?.tagName === "TH";
  const areNumbers = rows.every(([text]) => (isName ? /^[\d,]+$/ : /\d|^-?$|^n\/a/).test(text));
  rows.sort(([a], [b]) => {
    if (!areNumbers) return descending ? b.localeCompare(a) : a.localeCompare(b);
    const [x, y] = [numberIn(a), numberIn(b)];
    if (Number.isNaN(x) || Number.isNaN(y)) return Number.isNaN(x) - Number.isNaN(y); // what is no number comes last
    return descending ? y - x : x - y;
  });
  body.append(...rows.map(([, row]) => row));
};

const linesOf = (table) =>
  [...table.rows]
    .filter((row) => !row.classList.contains("filtered-out"))
    .map((row) => [...row.cells].filter((cell) => !cell.hidden).map((cell) => cell.textContent.trim().replace(/\s+/g, " ")));

const LATEX = { "\\": "\\textbackslash{}", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}" };
const forLatex = (text) => text.replace(/[\\~^]|[&%$#_{}]/g, (letter) => LATEX[letter] ?? `\\${letter}`);

const writers = {
  CSV: (lines) => lines.map((line) => line.map((text) => (/[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text)).join(",")).join("\n"),
  Markdown: ([head, ...rows]) =>
    [head, head.map(() => "---"), ...rows].map((line) => `| ${line.map((text) => text.replaceAll("|", "\\|")).join(" | ")} |`).join("\n"),
  LaTeX: ([head, ...rows]) =>
    [
      `\\begin{tabular}{l${"r".repeat(head.length - 1)}}`, "\\hline", `${head.map(forLatex).join(" & ")} \\\\`, "\\hline",
      ...rows.map((line) => `${line.map(forLatex).join(" & ")} \\\\`), "\\hline", "\\end{tabular}",
    ].join("\n"),
};

const copied = async (button, text) => {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = document.createElement("textarea"); // where the page may not use the clipboard
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  const name = button.textContent;
  button.textContent = "copied";
  setTimeout(() => (button.textContent = name), 1500);
};

for (const table of document.querySelectorAll("main table")) {
  [...table.tHead.rows[0].cells].forEach((head, at) => {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "sort";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const descending = head.getAttribute("aria-sort") !== "descending";
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", descending ? "descending" : "ascending");
      sortBy(table, at, descending);
    });
  });
  const box = document.createElement("p");
  box.className = "copy screen";
  box.append("Copy as ");
  for (const [name, write] of Object.entries(writers)) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = name;
    button.setAttribute("aria-label", `Copy the table as ${name}`);
    button.addEventListener("click", () => copied(button, write(linesOf(table))));
    box.append(button, " ");
  }
  table.closest(".scroll").before(box);
}
