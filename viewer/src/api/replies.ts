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
export type Overview = Schemas["OverviewReply"];
export type OverviewBucket = Schemas["OverviewBucket"];
export type OverviewNode = Schemas["OverviewNode"];
export type OverviewWaiting = Schemas["OverviewWaiting"];
export type OverviewModel = Schemas["OverviewModel"];
export type OverviewAgent = Schemas["OverviewAgent"];
export type OverviewTiles = Schemas["OverviewTiles"];
export type SystemState = Schemas["SystemReply"];
export type ConversationList = Schemas["ConversationListReply"];
export type ConversationRow = Schemas["ConversationRow"];
export type ConversationMessages = Schemas["ConversationMessagesReply"];
export type ConversationMessage = Schemas["MessageRow"];
export type SignInList = Schemas["SignInListReply"];
export type SignInRow = Schemas["SignInRow"];
export type VersionList = Schemas["VersionListReply"];
