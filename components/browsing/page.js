// Reads the usable elements and the text of one frame. Runs inside the page, changes nothing in it, and returns
// {elements: [Element], described: [{role, name, value, states, options}], text, above, below}; null for an invisible
// frame. Elements above the scroll position come last, so that they are the first to be cut.
([mostElements, mostText]) => {
  if (innerWidth < 2 || innerHeight < 2 || !document.documentElement) return null;

  const INTERACTIVE = [
    "a[href]", "button", "input:not([type=hidden])", "select", "textarea", "summary", "[contenteditable='']",
    "[contenteditable=true]", "[onclick]", "[tabindex]:not([tabindex^='-'])",
    ...["button", "link", "checkbox", "radio", "tab", "menuitem", "menuitemcheckbox", "menuitemradio", "option",
      "switch", "combobox", "textbox", "searchbox", "slider", "spinbutton", "treeitem"].map((role) => `[role=${role}]`),
  ].join(",");
  const ROLES = { A: "link", BUTTON: "button", SELECT: "list", TEXTAREA: "textbox", SUMMARY: "button" };
  const INPUTS = {
    button: "button", submit: "button", reset: "button", image: "button", checkbox: "checkbox", radio: "radio",
    range: "slider", file: "file", search: "searchbox", password: "password",
  };
  const SILENT = new Set(["SCRIPT", "STYLE", "NOSCRIPT", "TEMPLATE", "HEAD", "IFRAME", "SVG", "SELECT", "TEXTAREA"]);
  const MOST_OPTIONS = 25;
  const MOST_NODES = 60000;

  const line = (text) => (text || "").replace(/\s+/g, " ").trim().slice(0, 300);
  const isFile = (element) => element.tagName === "INPUT" && element.type === "file";

  const isVisible = (element) => {
    if (isFile(element)) return true; // often hidden behind the page's own button
    if (!element.getClientRects().length) return false;
    const box = element.getBoundingClientRect();
    if (box.width < 1 || box.height < 1) return false;
    return getComputedStyle(element).visibility === "visible";
  };

  const roleOf = (element) => {
    const given = element.getAttribute("role");
    if (given) return given.split(" ")[0];
    if (element.tagName === "INPUT") return INPUTS[element.type] || "textbox";
    if (element.isContentEditable) return "textbox";
    return ROLES[element.tagName] || "element";
  };

  const nameOf = (element) => {
    const byId = (element.getAttribute("aria-labelledby") || "").split(/\s+/).filter(Boolean)
      .map((id) => element.getRootNode().getElementById?.(id)?.textContent);
    const isButton = element.tagName === "INPUT" && INPUTS[element.type] === "button";
    const isField = ["INPUT", "SELECT", "TEXTAREA"].includes(element.tagName);
    const candidates = [
      byId.join(" "),
      element.getAttribute("aria-label"),
      [...(element.labels || [])].map((label) => label.innerText).join(" "),
      isButton ? element.value || element.alt : "",
      isField || element.isContentEditable ? "" : element.innerText,
      element.getAttribute("placeholder"),
      element.getAttribute("title"),
      element.querySelector?.("img[alt]")?.alt,
      element.querySelector?.("svg title")?.textContent,
      element.getAttribute("name"),
      element.id,
      element.tagName === "A" ? element.getAttribute("href") : "",
    ];
    return candidates.map(line).find(Boolean) || "";
  };

  const describe = (element) => {
    const role = roleOf(element);
    const states = [];
    let value = "";
    let options = [];
    if (element.disabled || element.getAttribute("aria-disabled") === "true") states.push("disabled");
    if (element.checked || element.getAttribute("aria-checked") === "true") states.push("checked");
    if (element.getAttribute("aria-expanded") === "true") states.push("expanded");
    if (element.getAttribute("aria-selected") === "true") states.push("selected");
    if (element.required) states.push("required");
    if (element.tagName === "SELECT") {
      options = [...element.options].slice(0, MOST_OPTIONS).map((option) => line(option.label));
      value = [...element.selectedOptions].map((option) => line(option.label)).join(", ");
    } else if (isFile(element)) {
      value = [...element.files].map((file) => file.name).join(", ");
    } else if (role === "password") {
      value = element.value ? "(filled in)" : "";
    } else if (element.tagName === "TEXTAREA" || (element.tagName === "INPUT" && !["button", "checkbox", "radio"].includes(role))) {
      value = line(element.value);
    } else if (element.isContentEditable) {
      value = line(element.innerText);
    }
    return { role, name: nameOf(element), value, states, options };
  };

  const found = [];
  const texts = [];
  let length = 0;
  let block = null;
  let nodes = 0;

  const blockOf = (element) => {
    while (element.parentElement && getComputedStyle(element).display.startsWith("inline")) element = element.parentElement;
    return element;
  };

  const read = (node) => {
    const text = node.data.replace(/\s+/g, " ");
    const parent = node.parentElement;
    if (!text.trim() || length >= mostText || !parent || SILENT.has(parent.tagName.toUpperCase())) return;
    if (!isVisible(parent) || parent.getBoundingClientRect().bottom < 0) return;
    const around = blockOf(parent);
    const piece = (around !== block && texts.length ? "\n" : "") + text;
    block = around;
    texts.push(piece);
    length += piece.length;
  };

  const walk = (root) => {
    const walker = document.createTreeWalker(root, NodeFilter.SHOW_ELEMENT | NodeFilter.SHOW_TEXT);
    for (let node = walker.nextNode(); node && nodes < MOST_NODES; node = walker.nextNode()) {
      nodes += 1;
      if (node.nodeType === Node.TEXT_NODE) {
        read(node);
        continue;
      }
      if (node.matches(INTERACTIVE) && isVisible(node)) found.push(node);
      if (node.shadowRoot) walk(node.shadowRoot);
    }
  };
  walk(document.documentElement);

  const isAbove = (element) => element.getBoundingClientRect().bottom < 0 && !isFile(element);
  const shown = [...found.filter((each) => !isAbove(each)), ...found.filter(isAbove)].slice(0, mostElements);
  const page = document.scrollingElement || document.documentElement;
  return {
    elements: shown,
    described: shown.map(describe),
    text: texts.join("").slice(0, mostText),
    above: page.scrollTop / innerHeight,
    below: Math.max(0, page.scrollHeight - page.scrollTop - innerHeight) / innerHeight,
  };
}
