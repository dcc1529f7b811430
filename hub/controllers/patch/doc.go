// Package patch writes what a reconcile has changed of an object. It is the only writer of conditions in the hub.
//
// Conditions and all other status go into one request, so that nobody who waits for a condition sees it before the fields that it speaks of.
// What is outside of the status (finalizers, annotations, spec) goes into a request of its own, where it has changed. Where nothing has changed
// there is no request. So a reconcile that found nothing new costs no write, and one that did costs one: whoever adds a status field or a
// condition does so before the reconcile's Patch, and does not write it elsewhere. Each change of a message is a write: a message that repeats
// what is in the conditions of another object, such as names or numbers of other machines, multiplies writes.
//
// Several controllers write conditions of the same object. Each names those that it owns, and only these are written, on top of what the API
// server has: every request names the resource version that it was made for. When another writer was first, the change is made again for the
// newer object of the cache; while the cache has not seen that one, the error is a conflict, which failure.Requeue tries again soon.
//
// Messages of conditions are bounded here; see package message.
package patch
