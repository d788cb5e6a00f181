"""The page at /docs: every operation of the document with a form; nothing is loaded from elsewhere."""

DOCS_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Penstock REST</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:1.5rem auto;padding:0 1rem;color:#1b2733}
h1{font-size:1.4rem} h2{font-size:1.1rem;margin:1.6rem 0 .4rem}
details{border:1px solid #d5dde5;border-radius:4px;margin:.3rem 0;background:#fff}
summary{padding:.4rem .7rem;cursor:pointer} summary b{display:inline-block;min-width:4.5rem}
code,textarea,input,pre{font:13px ui-monospace,monospace}
form{padding:.3rem .8rem .8rem} label{display:block;margin:.3rem 0}
input{width:16rem;margin-left:.5rem} textarea{width:100%;height:8rem;box-sizing:border-box}
pre{background:#f3f6f9;padding:.6rem;overflow:auto;max-height:24rem;margin:.6rem 0 0}
.GET{color:#06662f}.POST{color:#0b4aa2}.DELETE{color:#a11}.PUT{color:#8a5a00}
</style></head><body>
<h1>Penstock REST</h1>
<p>Made from <a href="/openapi.json">openapi.json</a>. Requests go to this node, and change what it holds.</p>
<div id="operations">Loading.</div>
<script>
"use strict";
const make = (name, text, parent) => {
  const element = document.createElement(name);
  if (text) element.textContent = text;
  if (parent) parent.append(element);
  return element;
};
const example = (schema, all, depth) => {
  if (schema.$ref) return example(all[schema.$ref.split("/").pop()], all, depth + 1);
  if ("default" in schema && schema.default !== null) return schema.default;
  if (schema.enum) return schema.enum[0];
  if (schema.anyOf) return example(schema.anyOf[0], all, depth);
  if (schema.type === "object" && depth < 4) {
    const out = {};
    for (const name of schema.required || []) out[name] = example(schema.properties[name], all, depth + 1);
    return out;
  }
  if (schema.type === "array") return [example(schema.items || {}, all, depth + 1)];
  return {integer: schema.minimum || 0, boolean: false, string: "text"}[schema.type] ?? {};
};
const show = (path, method, operation, all, parent) => {
  const box = make("details", "", parent), head = make("summary", "", box);
  make("b", method, head).className = method;
  make("code", path, head);
  make("span", " " + operation.summary, head);
  const form = make("form", "", box), fields = [];
  for (const parameter of operation.parameters || []) {
    const label = make("label", parameter.name + (parameter.required ? " *" : ""), form);
    fields.push([parameter, make("input", "", label)]);
  }
  const json = operation.requestBody && operation.requestBody.content["application/json"];
  let body;
  if (json) {
    const sample = example(json.schema, all, 0);
    if (path.endsWith("publish") || path === "/produce") sample.value = {"hello": "world"};
    body = make("textarea", JSON.stringify(sample, null, 2), form);
  }
  make("button", "Send", form);
  form.onsubmit = async (event) => {
    event.preventDefault();
    let url = path;
    const query = new URLSearchParams();
    for (const [parameter, input] of fields) {
      if (parameter.in === "path") url = url.replace(`{${parameter.name}}`, encodeURIComponent(input.value));
      else if (input.value) query.set(parameter.name, input.value);
    }
    if (query.size) url += "?" + query;
    const out = form.querySelector("pre") || make("pre", "", form);
    const options = {method};
    if (body) {
      options.body = body.value;
      options.headers = {"content-type": "application/json"};
    }
    try {
      const response = await fetch(url, options);
      let text = await response.text();
      try { text = JSON.stringify(JSON.parse(text), null, 2); } catch { }
      out.textContent = `${method} ${url}\\n${response.status} ${response.statusText}\\n\\n${text}`;
    } catch (error) { out.textContent = String(error); }
  };
};
fetch("/openapi.json").then((response) => response.json()).then((api) => {
  const root = document.getElementById("operations");
  root.textContent = "";
  for (const tag of api.tags) {
    make("h2", tag.description, root);
    for (const [path, methods] of Object.entries(api.paths))
      for (const [method, operation] of Object.entries(methods))
        if (operation.tags[0] === tag.name)
          show(path, method.toUpperCase(), operation, api.components.schemas, root);
  }
});
</script></body></html>
"""
