// Package turns decides which request runs next, and at which model server.
//
// A request waits in the line of its deployment until one of its servers has a place. Choosing a server and taking the
// place is one step under the lock; nothing is sent before. A server is an upstream of a connector, over all its
// tunnels. Its places are max_requests of the connector, for all its servers together, and max_concurrency of the
// deployment at each server.
//
// Who is next when a place frees at a connector: of each line, its first request that may go there, by priority, owners
// in turn, keys in turn, age. Among these, the higher priority (judges first), the owner with the fewest requests at
// this connector, the key with the fewest, the owner and then the key that was served longest ago there, the oldest. A
// client that comes back counts as served when it came. A request that may not go there keeps its turn. A request of
// low priority becomes normal after half of its maximum wait.
//
// A server that loads one model at a time serves its models in turns. Models are ordered: first those that have waited
// four times swap_after, then by the highest waiting priority, then by how long they have waited. The loaded model
// closes when it is idle, or for a model that has waited so long, or is of higher priority and has waited 5 s, or is
// not lower while the turn has lasted swap_after since the head of its first answer. Then nothing is sent until its
// requests have ended, and the first model in order is next.
//
// # Locks
//
// Each account has a mutex. Scheduler.mu may be taken while it is held, never the other way round. Only
// Connector.Resolve, Server.Lacks and the function of SetShare are called under it: they are pure. The lookup of [New]
// runs without a lock.
//
// # Callers
//
// The request path calls [Scheduler.Wait], [Place.Answered], and [Place.Leave] or [Place.Unused]. The hub reports
// connectors after its own lock ([Scheduler.SetConnector], [Scheduler.RemoveConnector]), the store reports deployments
// ([Scheduler.DeploymentChanged]).
//
// Each change marks the connectors that it concerns. account.unlock decides for these who is next, gives them their
// places, and wakes them. Only one thing happens by time alone: the loaded model closes, and its requests may then go
// to another server. Each server that loads one model at a time has a timer for that.
package turns
