// Package patch writes what a reconcile has changed of an object. It is the only writer of conditions in the hub.
//
// Conditions and the rest of the status are written in one request, so that no watcher sees a condition before the fields that it is about.
// What is outside of the status (finalizers, annotations, spec) is written in another request. Without a change there is no request. So a
// reconcile that found nothing new costs no write, and any other costs one: new status fields and conditions are set before the reconcile's
// Patch, and not written elsewhere. Each change of a message is a write: a message that repeats conditions of other objects, such as names
// or numbers of other machines, multiplies writes.
//
// Several controllers write conditions of the same object. Each names those that it owns, and only these are written, with the resource
// version that they were computed for. After a conflict, the change is applied to the newer object of the cache; while the cache has not
// seen that one, the error is a conflict, which apierrors.Requeue retries.
//
// Controllers use the client of NewClient, which reads its own patches.
//
// Messages of conditions are bounded here; see package message.
package patch
