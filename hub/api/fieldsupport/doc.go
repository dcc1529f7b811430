// Package fieldsupport says of every field of a spec in hub/api what becomes of it: whether the hub acts on it, refuses it, or takes it and
// warns that it has no effect. No field is accepted in silence: a test walks all fields of all kinds and fails for one that is not in the
// table, and for one that the table says is acted on although no code reads it. Who builds what a field asks for changes its line.
//
// The package knows names of fields only. What is wrong with a value is told where the value is used.
package fieldsupport
