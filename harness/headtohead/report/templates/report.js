(function () {
  "use strict";
  var data = JSON.parse(document.getElementById("maps").textContent);
  var controls = document.getElementById("choose");
  var panels = document.getElementById("panels");
  var NS = "http://www.w3.org/2000/svg", CELL = 17;
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

  function drawing(map, queries, keys) {
    var left = 10 + 7 * Math.max.apply(null, queries.map(function (t) { return shortened(t).length; }));
    var top = 10 + 5.6 * Math.max.apply(null, keys.map(function (t) { return shortened(t).length; }));
    var width = Math.round(left + CELL * keys.length + 22);
    var height = Math.round(top + CELL * queries.length + 4);
    var svg = element("svg", { viewBox: "0 0 " + width + " " + height, width: width, height: height,
      "font-size": 10.5, role: "img" });
    keys.forEach(function (key, j) {
      var transform = "translate(" + (left + (j + 0.62) * CELL) + " " + (top - 5) + ") rotate(-55)";
      svg.append(element("text", { transform: transform, fill: "var(--ink)" }, shortened(key)));
    });
    svg.append(element("rect", { x: left, y: top, width: CELL * keys.length,
      height: CELL * queries.length, fill: "none", stroke: "var(--muted)", "stroke-width": 0.6 }));
    var values = decoded(map), heads = map.shape[1];
    queries.forEach(function (query, i) {
      svg.append(element("text", { x: left - 5, y: top + (i + 0.72) * CELL, "text-anchor": "end",
        fill: "var(--ink)" }, shortened(query)));
      keys.forEach(function (key, j) {
        var index = ((chosen.layer * heads + chosen.head) * queries.length + i) * keys.length + j;
        var weight = values[index];
        if (Math.abs(weight) < 0.002) return;
        var cell = element("rect", { x: left + j * CELL, y: top + i * CELL, width: CELL,
          height: CELL, fill: weight > 0 ? "var(--c1)" : "var(--c2)",
          "fill-opacity": Math.min(Math.abs(weight), 1).toFixed(2) });
        cell.append(element("title", {}, query + " → " + key + ": " + weight.toFixed(3)));
        svg.append(cell);
      });
    });
    return svg;
  }

  function panel(variant) {
    var box = document.createElement("div"), title = document.createElement("h3");
    var numbers = document.createElement("div"), probe = variant.probes[chosen.probe];
    var map = probe && probe.roles[chosen.role];
    var titleText = document.createElement("span");
    box.className = "panel";
    title.append(titleText);
    variant.title.split(" · ").forEach(function (part, index) {
      var piece = document.createElement("span");
      piece.className = "nw";
      piece.textContent = part;
      titleText.append(index ? " · " : "", piece);
    });
    numbers.className = "small";
    box.append(title, numbers);
    if (!map || chosen.layer >= map.shape[0] || chosen.head >= map.shape[1]) {
      numbers.textContent = "seed " + variant.seed + " · no such layer or head";
      return box;
    }
    numbers.textContent = "seed " + variant.seed + " · entropy " +
      map.entropy[chosen.layer][chosen.head].toFixed(2) + ", distance " +
      map.distance[chosen.layer][chosen.head].toFixed(2);
    box.append(drawing(map, chosen.role === "encoder" ? probe.source : probe.target,
      { encoder: probe.source, decoder: probe.target, cross: probe.cross }[chosen.role]));
    return box;
  }

  function redraw() {
    panels.replaceChildren.apply(panels, data.variants.map(panel));
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
