// Package operations has what those controllers share that read or write operations (operation.cattle.io): finding those of a cluster,
// writing what was decided, deleting what has ended, and metrics. What an operation does next is decided in hub/plan/operation.
package operations
