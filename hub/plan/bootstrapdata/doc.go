// Package bootstrapdata makes the bootstrap data of a machine: the install script in the form that the machine's provider hands on, merged
// with what the user adds. It is pure: the same inputs give the same bytes. It knows no kind of object and no credential; both are in the
// script that it is given.
package bootstrapdata
