// Package timelines has the record of what a cluster and its machines went through: its phases, its bounds, and the ConfigMaps in which it
// is stored. hub/controllers/timeline decides which phase a subject is in, and writes; commands read.
package timelines
