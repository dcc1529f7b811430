// Package mcnflag has the create flags of a driver for tests. Drivers send pointers to types of exactly these names.
package mcnflag

// StringFlag is a flag with a text.
type StringFlag struct{ Name, Usage, EnvVar, Value string }

// StringSliceFlag is a flag that may be given several times.
type StringSliceFlag struct {
	Name, Usage, EnvVar string
	Value               []string
}

// IntFlag is a flag with a number.
type IntFlag struct {
	Name, Usage, EnvVar string
	Value               int
}

// BoolFlag is a flag without a value.
type BoolFlag struct{ Name, Usage, EnvVar string }
