// The figures of a run's page: curves over one shared stretch of time, and spreads of latencies. Draws SVG from the
// numbers in the page; no library, no request. The one idea: a view [from, to] in seconds and a cursor are all its state.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const LEFT = 46, RIGHT = 10, TOP = 8, AXIS = 20;

  const make = (name, attributes, parent, text) => {
    const node = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    if (text !== undefined) node.textContent = text;
    if (parent) parent.appendChild(node);
    return node;
  };
  const color = (name) => `var(--${name})`;
  const clamp = (value, low, high) => Math.min(Math.max(value, low), high);
  const round = (value) => Math.round(value * 10) / 10;

  // -- words -----------------------------------------------------------------------------------------------------
  const number = (value) => (Math.abs(value) >= 100 || value === Math.round(value)
    ? Math.round(value).toLocaleString("en-US") : value.toPrecision(3).replace(/\.?0+$/, ""));
  const ms = (value) => (value < 1000 ? `${Number(value.toPrecision(3))} ms` : `${Number((value / 1000).toPrecision(3))} s`);
  const seconds = (value, step) => {
    const digits = clamp(Math.ceil(-Math.log10(step)), 0, 4);
    if (step < 60) return `${value.toFixed(digits)} s`;
    const minutes = Math.round(value / 60);
    if (data.end_s < 14400) return `${minutes} min`;
    return `${Math.floor(minutes / 60)} h ${String(minutes % 60).padStart(2, "0")}`;
  };
  const NICE = [1, 2, 2.5, 5, 10];
  const NICE_S = [30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 43200, 86400];
  const nice = (rough, whole) => {
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = power * NICE.find((n) => n * power >= rough * 0.999);
    return whole ? Math.max(1, Math.ceil(step)) : step;
  };
  const niceSeconds = (rough) => (rough <= 20 ? nice(rough) : NICE_S.find((n) => n >= rough) || nice(rough));

  // -- curves over time ------------------------------------------------------------------------------------------
  const time = data.time;
  const times = new Float64Array(time.t.length + 1);
  for (let i = 0, sum = 0; i < time.t.length; i++) times[i] = (sum += time.t[i]) * time.unit_s;
  times[time.t.length] = data.end_s;
  const state = { from: 0, to: data.end_s, cursor: null };

  const indexAt = (moment) => {
    let low = 0, high = time.t.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (times[middle] <= moment) low = middle + 1; else high = middle;
    }
    return low - 1;
  };

  // Mean over time and peak of a curve in each of `count` columns of the view.
  const columns = (series, count) => {
    const width = (state.to - state.from) / count;
    const mean = new Float64Array(count), peak = new Float64Array(count);
    for (let i = Math.max(indexAt(state.from), 0); i < time.t.length && times[i] < state.to; i++) {
      const begin = Math.max(times[i], state.from), end = Math.min(times[i + 1], state.to);
      const top = series.peak ? series.peak[i] : series.mean[i];
      const last = Math.min(Math.floor((end - state.from) / width), count - 1);
      for (let c = Math.floor((begin - state.from) / width); c <= last; c++) {
        const part = Math.min(end, state.from + (c + 1) * width) - Math.max(begin, state.from + c * width);
        if (part <= 0) continue;
        mean[c] += series.mean[i] * part / width;
        peak[c] = Math.max(peak[c], top);
      }
    }
    return { mean, peak };
  };

  // Output tokens per second in round bins of the view: at most 120, and about ten steps or more in one.
  const rates = () => {
    const first = Math.max(indexAt(state.from), 0), last = indexAt(state.to);
    const span = state.to - state.from;
    const width = niceSeconds(Math.max(span / 120, 10 * span / Math.max(last - first, 1)));
    const bins = [];
    for (let i = first; i <= last; i++) {
      if (!time.sampled[i]) continue;
      const bin = Math.floor(times[i + 1] / width);
      bins[bin] = (bins[bin] || 0) + time.sampled[i];
    }
    const points = [];
    for (let bin = Math.floor(state.from / width); bin * width < state.to; bin++) {
      const whole = Math.min((bin + 1) * width, data.end_s) - bin * width;
      if (whole > 0.3 * width) points.push([bin * width, bin * width + whole, (bins[bin] || 0) / whole]);
    }
    return { points, width };
  };

  class Panel {
    constructor(spec) {
      this.spec = spec;
      this.figure = document.getElementById(`panel-${spec.id}`);
      this.plot = this.figure.querySelector(".plot");
      this.reading = this.figure.querySelector(".reading");
      this.last = spec === data.panels[data.panels.length - 1];
      listen(this.plot, this);
    }

    x(moment) { return LEFT + (this.width - LEFT - RIGHT) * (moment - state.from) / (state.to - state.from); }
    y(value) { return TOP + (this.height - TOP) * (1 - value / this.top); }
    moment(x) { return state.from + (state.to - state.from) * clamp((x - LEFT) / (this.width - LEFT - RIGHT), 0, 1); }

    draw() {
      this.width = this.plot.clientWidth;
      this.height = this.plot.clientHeight - (this.last ? AXIS : 2);
      const svg = make("svg", { "aria-hidden": "true", focusable: "false" });
      const shapes = this.spec.id === "tokens_per_s" ? this.stairs() : this.curves();
      this.frame(svg);
      for (const { area, line, of } of shapes()) {
        if (area) make("path", { d: area, fill: color(of), "fill-opacity": 0.22 }, svg);
        if (line) make("path", { d: line, fill: "none", stroke: color(of), "stroke-width": 1.4, "stroke-linejoin": "round" }, svg);
      }
      this.marks(svg);
      this.pointer = make("line", { class: "cursor", y1: TOP, y2: this.height, visibility: "hidden" }, svg);
      this.chosen = make("rect", { class: "chosen", y: TOP, height: this.height - TOP, width: 0 }, svg);
      this.plot.replaceChildren(svg);
      this.point();
    }

    curves() {
      const count = Math.max(60, Math.floor(this.width - LEFT - RIGHT));
      const each = this.spec.series.map((s) => columns(time.series[s.key], count));
      const top = Math.max(...each.map((c) => Math.max(...c.peak)));
      this.scale(top);
      return () => each.map(({ mean, peak }, i) => {
        const at = (c) => round(this.x(state.from + (c + 0.5) * (state.to - state.from) / count));
        const over = (values) => Array.from(values, (value, c) => `${at(c)} ${round(this.y(value))}`).join("L");
        return {
          of: this.spec.series[i].color,
          area: `M${at(0)} ${this.y(0)}L${over(peak)}L${at(count - 1)} ${this.y(0)}Z`,
          line: `M${over(mean)}`,
        };
      });
    }

    stairs() {
      this.rates = rates();
      const { points } = this.rates;
      this.scale(Math.max(0, ...points.map((p) => p[2])));
      return () => {
        const edge = (moment) => round(this.x(clamp(moment, state.from, state.to)));
        const path = points.map(([a, b, rate]) => `${edge(a)} ${round(this.y(rate))}L${edge(b)} ${round(this.y(rate))}`).join("L");
        if (!points.length) return [];
        const [first, last] = [edge(points[0][0]), edge(points[points.length - 1][1])];
        return [{ of: this.spec.series[0].color, line: `M${path}`, area: `M${first} ${this.y(0)}L${path}L${last} ${this.y(0)}Z` }];
      };
    }

    scale(peak) {
      const { limit, full } = this.spec;
      this.limit = limit && peak >= 0.6 * limit.value ? limit : null;
      this.top = (full && peak >= 50 ? 100 : 1.13 * Math.max(peak, this.limit ? limit.value : 0)) || 1;
    }

    frame(svg) {
      const step = nice(this.top / 3.2, this.spec.whole);
      for (let value = 0; value <= this.top * 1.001; value += step) {
        make("line", { class: "grid", x1: LEFT, x2: this.width - RIGHT, y1: this.y(value), y2: this.y(value) }, svg);
        make("text", { x: LEFT - 7, y: this.y(value) + 4, "text-anchor": "end" }, svg, number(value) + (this.spec.unit || ""));
      }
      if (!this.last) return;
      const room = Math.max(2, Math.floor((this.width - LEFT - RIGHT) / 92));
      const gap = niceSeconds((state.to - state.from) / room);
      for (let i = Math.ceil(state.from / gap - 1e-9); i * gap <= state.to + 1e-9; i++) {
        const x = this.x(i * gap);
        const anchor = x > this.width - RIGHT - 24 ? "end" : "middle";
        make("text", { x, y: this.height + 15, "text-anchor": anchor }, svg, seconds(i * gap, gap));
      }
    }

    marks(svg) {
      if (this.limit) {
        const y = this.y(this.limit.value);
        make("line", { class: "limit", x1: LEFT, x2: this.width - RIGHT, y1: y, y2: y }, svg);
        make("text", { x: this.width - RIGHT - 3, y: y - 5, "text-anchor": "end" }, svg, this.limit.label);
      }
      if (this.spec.id !== "kv") return;
      const seen = data.preempted_s.filter((moment) => moment >= state.from && moment <= state.to);
      const path = seen.map((moment) => `M${round(this.x(moment))} ${TOP - 7}v7`).join("");
      if (path) make("path", { d: path, stroke: color("red"), "stroke-width": 1.2 }, svg);
    }

    point() {
      const shown = state.cursor !== null && state.cursor >= state.from && state.cursor <= state.to;
      this.pointer.setAttribute("visibility", shown ? "visible" : "hidden");
      if (shown) for (const end of ["x1", "x2"]) this.pointer.setAttribute(end, this.x(state.cursor));
      this.reading.textContent = shown ? this.read() : "";
    }

    read() {
      const when = `at ${seconds(state.cursor, Math.min((state.to - state.from) / 1000, 0.1))}`;
      if (this.rates) {
        const bin = this.rates.points.find(([a, b]) => a <= state.cursor && state.cursor <= b);
        return bin ? `${number(bin[2])} ${when}, over ${seconds(this.rates.width, this.rates.width)}` : "";
      }
      const i = indexAt(state.cursor);
      const value = (key) => (i < 0 ? 0 : time.series[key].mean[i]);
      return `${this.spec.series.map((s) => number(value(s.key)) + (this.spec.unit || "")).join(" · ")} ${when}`;
    }
  }

  const panels = [];
  const point = () => panels.forEach((panel) => panel.point());
  const range = document.getElementById("range");
  const draw = () => {
    panels.forEach((panel) => panel.draw());
    const step = (state.to - state.from) / 1000;
    const all = state.from === 0 && state.to === data.end_s;
    range.textContent = all ? "" : `${seconds(state.from, step)} to ${seconds(state.to, step)}`;
  };
  const view = (from, to) => {
    const least = Math.min(data.end_s, Math.max(data.end_s * 1e-4, 20 * time.unit_s));
    const span = clamp(to - from, least, data.end_s);
    state.from = clamp((from + to - span) / 2, 0, data.end_s - span);
    state.to = state.from + span;
    draw();
  };
  const zoom = (factor) => {
    const span = (state.to - state.from) * factor;
    const middle = state.cursor === null ? (state.from + state.to) / 2 : state.cursor;
    const share = (middle - state.from) / (state.to - state.from);
    view(middle - share * span, middle + (1 - share) * span);
  };
  const shift = (share) => {
    const by = share * (state.to - state.from);
    const kept = clamp(by, -state.from, data.end_s - state.to);
    view(state.from + kept, state.to + kept);
  };

  function listen(plot, panel) {
    let began = null;
    const at = (event) => event.clientX - plot.getBoundingClientRect().left;
    const choose = (event) => {
      const [a, b] = [began, clamp(at(event), LEFT, panel.width - RIGHT)].sort((p, q) => p - q);
      return { a, b, wide: b - a > 6 };
    };
    plot.addEventListener("pointerdown", (event) => {
      if (event.button) return;
      began = clamp(at(event), LEFT, panel.width - RIGHT);
      plot.setPointerCapture(event.pointerId);
    });
    plot.addEventListener("pointermove", (event) => {
      state.cursor = panel.moment(at(event));
      point();
      if (began === null) return;
      const { a, b, wide } = choose(event);
      panel.chosen.setAttribute("x", a);
      panel.chosen.setAttribute("width", wide ? b - a : 0);
    });
    plot.addEventListener("pointerup", (event) => {
      if (began === null) return;
      const { a, b, wide } = choose(event);
      began = null;
      panel.chosen.setAttribute("width", 0);
      if (wide) view(panel.moment(a), panel.moment(b));
    });
    plot.addEventListener("pointercancel", () => { began = null; panel.chosen.setAttribute("width", 0); });
    plot.addEventListener("pointerleave", () => { if (began === null) { state.cursor = null; point(); } });
    plot.addEventListener("dblclick", () => view(0, data.end_s));
    plot.addEventListener("keydown", (event) => {
      const step = (state.to - state.from) / 100;
      const keys = {
        ArrowLeft: () => step, ArrowRight: () => step,
        "+": () => zoom(0.5), "-": () => zoom(2), Escape: () => view(0, data.end_s), Home: () => view(0, data.end_s),
      };
      if (!(event.key in keys) || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      if (event.key.startsWith("Arrow")) {
        const from = state.cursor === null ? (state.from + state.to) / 2 : state.cursor;
        state.cursor = clamp(from + (event.key === "ArrowLeft" ? -step : step), state.from, state.to);
        point();
      } else keys[event.key]();
    });
  }

  // -- spreads ---------------------------------------------------------------------------------------------------
  const SHARES = [[0, "0 %"], [0.5, "50 %"], [0.9, "90 %"], [0.99, "99 %"], [0.999, "99.9 %"], [0.9999, "99.99 %"]];
  const lift = (share) => -Math.log10(1 - share);

  class Spread {
    constructor(spec) {
      this.spec = spec;
      const figure = document.getElementById(`spread-${spec.id}`);
      this.plot = figure.querySelector(".plot");
      this.reading = figure.querySelector(".reading");
      const positive = spec.ms.filter((value) => value > 0);
      const low = positive[0] || 0.1, high = spec.ms[spec.ms.length - 1] || 1;
      this.log = high >= 3 * low;
      const pad = Math.max(high - low, 0.04 * high) * 0.1;
      [this.low, this.high] = this.log ? [low / 1.08, high * 1.12] : [Math.max(0, low - pad), high + pad];
      this.plot.addEventListener("pointermove", (event) => this.point(event.clientX - this.plot.getBoundingClientRect().left));
      this.plot.addEventListener("pointerleave", () => this.point(null));
    }

    x(value) {
      const share = this.log
        ? Math.log(Math.max(value, this.low) / this.low) / Math.log(this.high / this.low)
        : (value - this.low) / (this.high - this.low);
      return this.left + (this.width - this.left - RIGHT) * share;
    }

    y(height) { return TOP + (this.height - TOP) * (1 - height / (1.04 * this.top)); }

    draw() {
      this.left = 56;
      this.width = this.plot.clientWidth;
      this.height = this.plot.clientHeight - AXIS;
      const heights = this.spec.height;
      this.top = heights[heights.length - 1];
      this.nines = heights[heights.length - 2];
      const svg = make("svg", { "aria-hidden": "true", focusable: "false" });
      this.frame(svg);
      const path = this.spec.ms.map((value, i) => `${round(this.x(value))} ${round(this.y(heights[i]))}`).join("L");
      const of = color(this.spec.color);
      make("path", { d: `M${path}L${round(this.x(this.spec.ms[this.spec.ms.length - 1]))} ${this.y(0)}L${round(this.x(this.spec.ms[0]))} ${this.y(0)}Z`, fill: of, "fill-opacity": 0.13 }, svg);
      make("path", { d: `M${path}`, fill: "none", stroke: of, "stroke-width": 2, "stroke-linejoin": "round" }, svg);
      this.pointer = make("line", { class: "cursor", y1: TOP, y2: this.height, visibility: "hidden" }, svg);
      this.dot = make("circle", { r: 4.5, fill: of, visibility: "hidden" }, svg);
      this.plot.replaceChildren(svg);
    }

    frame(svg) {
      for (const [share, text] of SHARES) {
        if (lift(share) <= this.nines + 1e-9) this.level(svg, lift(share), text);
      }
      this.level(svg, this.top, "100 %");
      let free = -Infinity;
      for (const value of this.ticks()) {
        const x = this.x(value);
        make("line", { class: "grid", x1: x, x2: x, y1: TOP, y2: this.height }, svg);
        if (x - free < 58 || x > this.width - 18) continue;
        make("text", { x, y: this.height + 15, "text-anchor": "middle" }, svg, ms(value));
        free = x;
      }
    }

    level(svg, height, text) {
      const y = this.y(height);
      make("line", { class: "grid", x1: this.left, x2: this.width - RIGHT, y1: y, y2: y }, svg);
      make("text", { x: this.left - 7, y: y + 4, "text-anchor": "end" }, svg, text);
    }

    ticks() {
      const told = [];
      if (!this.log) {
        const step = nice((this.high - this.low) / 4);
        for (let i = Math.ceil(this.low / step); i * step <= this.high; i++) told.push(i * step);
        return told;
      }
      const factors = this.high < 6 * this.low ? [1, 1.5, 2, 3, 4, 5, 7] : this.high < 20 * this.low ? [1, 2, 5] : this.high < 150 * this.low ? [1, 3] : [1];
      for (let power = Math.floor(Math.log10(this.low)); 10 ** power <= this.high; power++) {
        for (const factor of factors) {
          const value = factor * 10 ** power;
          if (value >= this.low && value <= this.high) told.push(value);
        }
      }
      return told;
    }

    point(x) {
      const shown = x !== null && x >= this.left && x <= this.width - RIGHT;
      this.pointer.setAttribute("visibility", shown ? "visible" : "hidden");
      this.dot.setAttribute("visibility", shown ? "visible" : "hidden");
      this.reading.textContent = "";
      if (!shown) return;
      const after = this.spec.ms.findIndex((value) => this.x(value) > x);
      const i = after < 0 ? this.spec.ms.length - 1 : Math.max(after - 1, 0);
      const share = i === this.spec.ms.length - 1 ? 100 : 100 * (1 - 10 ** -this.spec.height[i]);
      for (const end of ["x1", "x2"]) this.pointer.setAttribute(end, x);
      this.dot.setAttribute("cx", x);
      this.dot.setAttribute("cy", this.y(this.spec.height[i]));
      const at = this.log
        ? this.low * (this.high / this.low) ** ((x - this.left) / (this.width - this.left - RIGHT))
        : this.low + (this.high - this.low) * (x - this.left) / (this.width - this.left - RIGHT);
      const digits = share === 100 ? 0 : clamp(Math.ceil(this.spec.height[i]) - 1, 0, 4);
      this.reading.textContent = `${share.toFixed(digits)} % within ${ms(at)}`;
    }
  }

  // -- begin -----------------------------------------------------------------------------------------------------
  for (const spec of data.panels) panels.push(new Panel(spec));
  const spreads = data.spreads.map((spec) => new Spread(spec));
  const actions = { in: () => zoom(0.5), out: () => zoom(2), back: () => shift(-0.5), on: () => shift(0.5), all: () => view(0, data.end_s) };
  for (const button of document.querySelectorAll("[data-zoom]")) button.addEventListener("click", actions[button.dataset.zoom]);
  let drawn = 0;
  const redraw = () => {
    if (document.documentElement.clientWidth === drawn) return;
    drawn = document.documentElement.clientWidth;
    if (panels.length) draw();
    spreads.forEach((spread) => spread.draw());
  };
  redraw();
  window.addEventListener("resize", redraw);
  window.addEventListener("beforeprint", () => { drawn = 0; redraw(); });
})();
