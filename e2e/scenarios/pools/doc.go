// Package pools holds the scenarios of clusters whose machines an infrastructure provider makes, behind the build tag e2e: the lab's own
// provider, which knows nothing of the hub, boots real hosts for them. Those that are too long for every change have the tag full as well.
package pools
