(function () {
  "use strict";
  var data = JSON.parse(document.getElementById("maps").textContent);
  var controls = document.getElementById("choose");
  var panels = document.getElementById("panels");
  var caption = document.getElementById("maps-caption");
  var NS = "http://www.w3.org/2000/svg";
  var MANY = 16;  // tokens from which cells are smaller
  var chosen = data.open;

  function shortened(token) { return token.length > 14 ? token.slice(0, 13) + "…" : token; }

  function element(name, attributes, text) {
    var made = document.createElementNS(NS, name);
    Object.keys(attributes).forEach(function (key) { made.setAttribute(key, attributes[key]); });
    if (text !== undefined) made.textContent = text;
    return made;
  }

  function decoded(map) {
    if (!map.values) {
      var raw = atob(map.bytes);
      map.values = Float32Array.from(raw, function (character) {
        var level = character.charCodeAt(0);
        return map.scale * (map.signed ? (level - 128) / 127 : level / 255);
      });
    }
    return map.values;
  }

  function shown(variant) {
    var probe = variant.probes[chosen.probe], map = probe && probe.roles[chosen.role];
    return map && chosen.layer < map.shape[0] && chosen.head < map.shape[1] ? map : null;
  }

  // The weights of the chosen head of a map, row by row.
  function weightsOf(map) {
    var cells = map.shape[2] * map.shape[3];
    var start = (chosen.layer * map.shape[1] + chosen.head) * cells;
    return decoded(map).subarray(start, start + cells);
  }

  // The largest absolute weight of the chosen head in all variants: all maps have one scale.
  function limit() {
    var largest = 0;
    data.variants.map(shown).forEach(function (map) {
      if (map) weightsOf(map).forEach(function (weight) { largest = Math.max(largest, Math.abs(weight)); });
    });
    return largest || 1;
  }

  function drawing(map, queries, keys, full) {
    var cell = Math.max(queries.length, keys.length) > MANY ? 12 : 17;
    var left = 10 + 7 * Math.max.apply(null, queries.map(function (t) { return shortened(t).length; }));
    var top = 12 + 6.4 * Math.max.apply(null, keys.map(function (t) { return shortened(t).length; }));
    var width = Math.round(left + cell * keys.length + 22);
    var height = Math.round(top + cell * queries.length + 4);
    var svg = element("svg", { viewBox: "0 0 " + width + " " + height, width: width, height: height,
      "font-size": 10.5, role: "img", "aria-label": "weights of " + queries.length + " queries and " + keys.length + " keys" });
    keys.forEach(function (key, j) {
      var transform = "translate(" + (left + (j + 0.62) * cell) + " " + (top - 5) + ") rotate(-55)";
      svg.append(element("text", { transform: transform, fill: "var(--ink)" }, shortened(key)));
    });
    svg.append(element("rect", { x: left, y: top, width: cell * keys.length,
      height: cell * queries.length, fill: "none", stroke: "var(--muted)", "stroke-width": 0.6 }));
    var weights = weightsOf(map);
    queries.forEach(function (query, i) {
      svg.append(element("text", { x: left - 5, y: top + (i + 0.72) * cell, "text-anchor": "end",
        fill: "var(--ink)" }, shortened(query)));
      keys.forEach(function (key, j) {
        var weight = weights[i * keys.length + j];
        if (Math.abs(weight) < 0.002 * full) return;
        var mark = element("rect", { x: left + j * cell, y: top + i * cell, width: cell,
          height: cell, fill: weight > 0 ? "var(--c1)" : "var(--c2)",
          "fill-opacity": (Math.abs(weight) / full).toFixed(2) });
        mark.append(element("title", {}, query + " → " + key + ": " + weight.toFixed(3)));
        svg.append(mark);
      });
    });
    return svg;
  }

  function panel(variant, full) {
    var box = document.createElement("div"), title = document.createElement("h4");
    var numbers = document.createElement("div"), probe = variant.probes[chosen.probe];
    var map = shown(variant);
    var titleText = document.createElement("span");
    box.className = "panel";
    box.tabIndex = 0;
    box.setAttribute("role", "region");
    box.setAttribute("aria-label", "Attention map: " + variant.title);
    title.append(titleText);
    variant.title.split(" · ").forEach(function (part, index) {
      var piece = document.createElement("span");
      piece.className = "nw";
      piece.textContent = part;
      titleText.append(index ? " · " : "", piece);
    });
    numbers.className = "small";
    box.append(title, numbers);
    if (!map) {
      numbers.textContent = "seed " + variant.seed + " · no such layer or head";
      return box;
    }
    numbers.textContent = "seed " + variant.seed + " · entropy " +
      map.entropy[chosen.layer][chosen.head].toFixed(2) + ", distance " +
      map.distance[chosen.layer][chosen.head].toFixed(2);
    box.append(drawing(map, chosen.role === "encoder" ? probe.source : probe.target,
      { encoder: probe.source, decoder: probe.target, cross: probe.cross }[chosen.role], full));
    return box;
  }

  function redraw() {
    var full = limit();
    panels.replaceChildren.apply(panels, data.variants.map(function (variant) {
      return panel(variant, full);
    }));
    var widths = Array.from(panels.querySelectorAll("svg"), function (svg) { return svg.width.baseVal.value; });
    panels.style.setProperty("--map", Math.max.apply(null, [262].concat(widths)) + "px");
    var slots = { sentence: data.probes[chosen.probe].split(/\s+/).join(" ").trim(), role: chosen.role,
      layer: chosen.layer, head: chosen.head, limit: full.toFixed(2) };
    caption.textContent = data.caption.replace(/\{(\w+)\}/g, function (slot, name) { return slots[name]; });
  }

  function largest(axis) {
    var most = 1;
    data.variants.forEach(function (variant) {
      variant.probes.forEach(function (probe) {
        Object.keys(probe.roles).forEach(function (role) {
          most = Math.max(most, probe.roles[role].shape[axis]);
        });
      });
    });
    return most;
  }

  function chooser(name, title, options, numeric) {
    var field = document.createElement("label"), list = document.createElement("select");
    field.append(title, list);
    options.forEach(function (text, index) {
      var option = document.createElement("option");
      option.value = numeric ? index : text;
      option.textContent = text;
      list.append(option);
    });
    list.value = chosen[name];
    list.addEventListener("change", function () {
      chosen[name] = numeric ? Number(list.value) : list.value;
      redraw();
    });
    controls.append(field);
  }

  function counted(word, count) {
    return Array.from({ length: count }, function (_, index) { return word + " " + index; });
  }

  chooser("probe", "sentence", data.probes, true);
  chooser("role", "role", data.roles, false);
  chooser("layer", "layer", counted("layer", largest(0)), true);
  chooser("head", "head", counted("head", largest(1)), true);
  controls.hidden = false;
  redraw();
})();
