"use strict";
(() => {
  const specs = JSON.parse(document.getElementById("specs").textContent);
  const boxes = [...document.querySelectorAll(".chart")];
  const tip = document.getElementById("tip");
  const drawn = new Map(); // box -> {width, finalize}

  // Colours are CSS variables: one drawing serves light, dark and print.
  const look = (width) => ({
    background: "transparent",
    font: "system-ui, sans-serif",
    view: { stroke: null },
    padding: { left: 2, top: 4, right: 18, bottom: 2 }, // room for the last label
    axis: {
      labelColor: "var(--ink)", titleColor: "var(--soft)", domainColor: "var(--line)",
      gridColor: "var(--line)", tickColor: "var(--line)", labelFontSize: 12, titleFontSize: 12,
      titleFontWeight: "normal", gridOpacity: 0.7, labelPadding: 6,
    },
    axisX: { domain: false, ticks: false },
    axisY: { domain: false, ticks: false, labelLimit: Math.round(width * 0.48) },
    axisBand: { grid: false },
  });

  const show = (_handler, event, _item, value) => {
    tip.hidden = !value;
    if (!value) return;
    tip.textContent = String(value);
    const box = tip.getBoundingClientRect();
    const left = Math.min(event.clientX + 14, document.documentElement.clientWidth - box.width - 8);
    const above = event.clientY - box.height - 12;
    tip.style.left = `${Math.max(8, left)}px`;
    tip.style.top = `${above < 8 ? event.clientY + 18 : above}px`;
  };

  const folds = [...document.querySelectorAll("details")];

  // Widths of all boxes, those in closed folds as if these were open; nothing is painted between.
  const measure = () => {
    const closed = folds.filter((fold) => !fold.open);
    for (const fold of closed) fold.open = true;
    const widths = new Map(boxes.map((box) => [box, Math.floor(box.clientWidth)]));
    for (const fold of closed) fold.open = false;
    return widths;
  };

  const draw = async (box, width) => {
    const before = drawn.get(box);
    if (!width || (before && before.width === width)) return;
    const spec = { ...specs[box.id], width, autosize: { type: "fit-x", contains: "padding" } };
    const view = await window.vegaEmbed(box, spec, {
      mode: "vega-lite", renderer: "svg", ast: true, actions: false, defaultStyle: false,
      tooltip: show, config: look(width),
    });
    if (before) before.finalize();
    drawn.set(box, { width, finalize: view.finalize });
  };

  // Tables that are cut off say so, and fade at the edge that hides something.
  const mark = (table) => {
    const hidden = table.scrollWidth - table.clientWidth - table.scrollLeft;
    const sides = [table.scrollLeft > 1 ? "left" : "", hidden > 1 ? "right" : ""];
    table.dataset.more = table.scrollWidth > table.clientWidth + 1 ? `yes ${sides.join(" ")}` : "";
  };
  const tables = [...document.querySelectorAll(".scroll")];
  for (const table of tables) table.addEventListener("scroll", () => mark(table), { passive: true });
  for (const fold of folds) {
    fold.addEventListener("toggle", () => fold.querySelectorAll(".scroll").forEach(mark));
  }

  const drawAll = async () => {
    tables.forEach(mark);
    const widths = measure();
    for (const box of boxes) {
      try {
        await draw(box, widths.get(box));
      } catch (error) {
        box.textContent = "This chart could not be drawn.";
        console.error(box.id, error);
      }
    }
    document.documentElement.dataset.charts = "drawn";
  };

  let waiting = 0;
  window.addEventListener("resize", () => {
    clearTimeout(waiting);
    waiting = setTimeout(drawAll, 150);
  });
  window.addEventListener("scroll", () => { tip.hidden = true; }, { passive: true });
  const unfold = () => { for (const fold of folds) fold.open = true; };
  window.addEventListener("beforeprint", unfold);
  const button = document.getElementById("unfold");
  button.hidden = folds.length < 3;
  button.addEventListener("click", () => { unfold(); button.hidden = true; });
  // A link to a section that is folded opens it.
  const open = () => {
    const section = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    const fold = section && section.querySelector("details");
    if (fold) fold.open = true;
  };
  window.addEventListener("hashchange", open);
  open();
  drawAll();
})();
