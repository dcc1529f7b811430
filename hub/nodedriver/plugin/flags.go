package plugin

import (
	"encoding/gob"
	"fmt"
)

// Kind is the type of a flag's value.
type Kind string

// The kinds of flags that drivers have.
const (
	String      Kind = "string"
	StringSlice Kind = "stringSlice"
	Int         Kind = "int"
	Bool        Kind = "bool"
)

// Flag is a create flag of a driver, such as digitalocean-size.
type Flag struct {
	Name   string
	Usage  string
	EnvVar string
	Kind   Kind
	// Default is a string, []string, int or bool, by Kind.
	Default any
}

// The types of the wire. Drivers send pointers to types of these names, with these fields.
type (
	stringFlag struct{ Name, Usage, EnvVar, Value string }
	sliceFlag  struct {
		Name, Usage, EnvVar string
		Value               []string
	}
	intFlag struct {
		Name, Usage, EnvVar string
		Value               int
	}
	boolFlag struct{ Name, Usage, EnvVar string }
	// options are the values of flags.
	options struct{ Values map[string]any }
)

func init() {
	gob.RegisterName("*mcnflag.StringFlag", new(stringFlag))
	gob.RegisterName("*mcnflag.StringSliceFlag", new(sliceFlag))
	gob.RegisterName("*mcnflag.IntFlag", new(intFlag))
	gob.RegisterName("*mcnflag.BoolFlag", new(boolFlag))
	gob.RegisterName("*rpcdriver.RPCFlags", new(options))
}

// flagOf converts a flag as a driver sends it.
func flagOf(wire any) (Flag, error) {
	switch f := wire.(type) {
	case *stringFlag:
		return Flag{f.Name, f.Usage, f.EnvVar, String, f.Value}, nil
	case *sliceFlag:
		return Flag{f.Name, f.Usage, f.EnvVar, StringSlice, append([]string{}, f.Value...)}, nil
	case *intFlag:
		return Flag{f.Name, f.Usage, f.EnvVar, Int, f.Value}, nil
	case *boolFlag:
		return Flag{f.Name, f.Usage, f.EnvVar, Bool, false}, nil
	}
	return Flag{}, fmt.Errorf("the driver has a flag of the unknown type %T", wire)
}
