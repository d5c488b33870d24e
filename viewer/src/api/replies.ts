/** Replies of the API by short names; their shapes are generated from OpenAPI (`make viewer-types`). */
import type { components } from "./schema";

type Schemas = components["schemas"];

export type About = Schemas["AboutReply"];
export type RunList = Schemas["RunListReply"];
export type RunRow = Schemas["KeysetRunRow"];
export type RunStates = Schemas["RunStatesReply"];
export type RunStateRow = Schemas["RunStateRow"];
export type Run = Schemas["RunReply"];
export type RunWait = Schemas["ExplanationReply"];
export type RunPermissions = Schemas["RunPermissions"];
export type Graph = Schemas["GraphReply"];
export type ActivationList = Schemas["ActivationListReply"];
export type Activation = Schemas["ActivationReply"];
export type AttemptList = Schemas["AttemptListReply"];
export type ToolCallList = Schemas["ToolCallListReply"];
export type ModelCallList = Schemas["ModelCallListReply"];
export type WholeModelCall = Schemas["WholeModelCallReply"];
export type EventList = Schemas["EventListReply"];
export type AgentList = Schemas["AgentListReply"];
export type CancelledRuns = Schemas["CancelledRunsReply"];
export type Choice = Schemas["Choice"];
export type ChoiceList = Schemas["ChoicesReply"];
export type AgentHead = Schemas["AgentHeadReply"];
export type SavedDraft = Schemas["SavedDraftReply"];
export type VersionList = Schemas["VersionListReply"];
export type VersionRow = Schemas["VersionRow"];
export type StartedRun = Schemas["StartedReply"];
