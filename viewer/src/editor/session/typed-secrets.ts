/** Fields that may contain secrets: this browser keeps none of them, since it keeps texts in clear. */
import { nodesOf, rawNodes, type Document } from "../document/document";
import { isEqual, isList, isObject, objectOf, setIn, textOf, withItem, withMember, withoutMember, type Json, type JsonObject } from "../document/json";

/** Returns the fields of a component or tool that may contain secrets. */
export type SecretFields = (component: string) => readonly string[];

/** Return a document without the fields that may contain secrets. */
export function withoutSecrets(document: Document, secretFields: SecretFields): Document {
  return changeForms(document, (form, component) => changeSecrets(form, null, component, secretFields));
}

/** Return a document with these fields as another one has them. */
export function withSecretsOf(source: Document, document: Document, secretFields: SecretFields): Document {
  const known = nodesOf(source);
  return changeForms(document, (form, component, id) => changeSecrets(form, known.get(id)?.form ?? {}, component, secretFields));
}

/** Whether these fields differ between two documents. */
export function differInSecrets(one: Document, other: Document, secretFields: SecretFields): boolean {
  return withSecretsOf(one, other, secretFields) !== other;
}

function changeForms(document: Document, change: (form: JsonObject, component: string, id: string) => JsonObject): Document {
  return rawNodes(document).reduce<Document>((now, raw, index) => {
    const data = objectOf(objectOf(raw).data);
    if (!isObject(data.form)) return now;
    const form = change(data.form, textOf(data.label), textOf(objectOf(raw).id));
    return form === data.form ? now : (setIn(now, ["graph", "nodes", index, "data", "form"], form) as Document);
  }, document);
}

/** Return a form with its secret fields as in another one, or without them (null); the same for the tools of an Agent. */
function changeSecrets(form: JsonObject, source: JsonObject | null, component: string, secretFields: SecretFields): JsonObject {
  const changed = secretFields(component).reduce((now, field) => {
    const [is, was] = [now[field], source?.[field]];
    if (was === undefined) return is === undefined ? now : withoutMember(now, field);
    return is !== undefined && isEqual(is, was) ? now : withMember(now, field, was);
  }, form);
  if (!isList(changed.tools)) return changed;
  const tools = changed.tools.reduce<readonly Json[]>((list, tool, index) => {
    const { component_name: name, params } = objectOf(tool);
    if (!isObject(tool) || !isObject(params)) return list;
    const own = changeSecrets(params, source === null ? null : paramsOfTool(source, index, name), textOf(name), secretFields);
    return own === params ? list : withItem(list, index, withMember(tool, "params", own));
  }, changed.tools);
  return tools === changed.tools ? changed : withMember(changed, "tools", tools);
}

/** Return the parameters of the tool at a place, if it is this one. */
function paramsOfTool(form: JsonObject, index: number, name: Json | undefined): JsonObject {
  const tool = objectOf(isList(form.tools) ? form.tools[index] : undefined);
  return tool.component_name === name ? objectOf(tool.params) : {};
}
