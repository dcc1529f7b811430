package jobs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	"github.com/drover-dev/drover/hub/nodedriver"
	"github.com/drover-dev/drover/hub/nodedriver/plugin"
	"github.com/drover-dev/drover/hub/nodedriver/programs"
	"github.com/drover-dev/drover/hub/nodedriver/schema"
	"github.com/drover-dev/drover/hub/util/message"
)

// The operations of a Job.
const (
	readFlags = "flags"
	create    = "create"
	remove    = "remove"
)

// The keys of the Secret with the order, and of that with the result.
const (
	orderKey = "order.json"
	// startedKey holds the name of the Pod that has begun, so that no second one does.
	startedKey = "started"
	stateKey   = nodedriver.StateKey
	resultKey  = "result"
)

// order is what a Job has to do.
type order struct {
	Operation  string                      `json:"operation"`
	Driver     string                      `json:"driver"`
	Source     managementv3.NodeDriverSpec `json:"source"`
	Name       string                      `json:"name,omitempty"`
	Hostname   string                      `json:"hostname,omitempty"`
	Spec       map[string]any              `json:"spec,omitempty"`
	Credential map[string]string           `json:"credential,omitempty"`
	Files      schema.Files                `json:"files,omitempty"`
	Script     []byte                      `json:"script,omitempty"`
	// State is the encoded state of the machine.
	State []byte `json:"state,omitempty"`
	// Proxy are the proxy settings of the hub, by the name of the variable. They may have a password.
	Proxy map[string]string `json:"proxy,omitempty"`
}

func orderOf(operation string, m *nodedriver.Machine) (*order, error) {
	o := &order{Operation: operation, Driver: m.Driver, Source: m.Source, Name: m.Name, Hostname: m.Hostname, Spec: m.Spec,
		Credential: m.Credential, Files: m.Files}
	if operation == create {
		o.Script = m.Script
	}
	if m.State != nil {
		var err error
		if o.State, err = m.State.Encode(); err != nil {
			return nil, err
		}
	}
	return o, nil
}

// machine is the machine of an order.
func (o *order) machine() (*nodedriver.Machine, error) {
	m := &nodedriver.Machine{Driver: o.Driver, Source: o.Source, Name: o.Name, Hostname: o.Hostname, Spec: o.Spec, Credential: o.Credential,
		Files: o.Files, Script: o.Script}
	if len(o.State) > 0 {
		var err error
		if m.State, err = nodedriver.Decode(o.Name, o.State); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func decodeOrder(raw []byte) (*order, error) {
	o := &order{}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber() // as text a large number would have an exponent otherwise
	if err := decoder.Decode(o); err != nil {
		return nil, fmt.Errorf("reading the order: %w", err)
	}
	return o, nil
}

// The kinds of errors that callers tell apart.
const (
	invalidError = "Invalid"
	programError = "Program"
	faultError   = "Fault"
	driverError  = "Driver"
)

// result is what has become of an order.
type result struct {
	Error string `json:"error,omitempty"`
	// ErrorKind is one of the kinds above; empty for other errors.
	ErrorKind string `json:"errorKind,omitempty"`
	// Method of the driver that failed.
	Method    string               `json:"method,omitempty"`
	Log       string               `json:"log,omitempty"`
	Addresses []nodedriver.Address `json:"addresses,omitempty"`
	Flags     []createFlag         `json:"flags,omitempty"`
	Checksum  string               `json:"checksum,omitempty"`
}

// createFlag is a create flag with its default as JSON.
type createFlag struct {
	Name    string          `json:"name"`
	Usage   string          `json:"usage,omitempty"`
	EnvVar  string          `json:"envVar,omitempty"`
	Kind    plugin.Kind     `json:"kind"`
	Default json.RawMessage `json:"default,omitempty"`
}

// maxAddresses and maxText bound what is taken of a result.
const (
	maxAddresses = 10
	maxText      = 32 << 10
)

// setError describes an error.
func (r *result) setError(err error) {
	if err == nil {
		return
	}
	r.Error = err.Error()
	var invalid *nodedriver.InvalidError
	var program *nodedriver.ProgramError
	var fault *programs.FaultError
	var driver *plugin.Error
	switch {
	case errors.As(err, &invalid):
		r.ErrorKind = invalidError
	case errors.As(err, &program):
		r.ErrorKind = programError
	case errors.As(err, &fault):
		r.ErrorKind = faultError
	case errors.As(err, &driver):
		r.ErrorKind, r.Method, r.Error = driverError, driver.Method, driver.Message
	}
}

// err is the error that setError has described; nil if there was none.
func (r *result) err() error {
	text := message.Bound(r.Error, maxText)
	switch {
	case r.Error == "":
		return nil
	case r.ErrorKind == invalidError:
		return &nodedriver.InvalidError{Message: text}
	case r.ErrorKind == programError:
		return &nodedriver.ProgramError{Err: errors.New(text)}
	case r.ErrorKind == faultError:
		return &programs.FaultError{Message: text}
	case r.ErrorKind == driverError:
		return &plugin.Error{Method: message.Bound(r.Method, 64), Message: text}
	}
	return errors.New(text)
}

func (r *result) setFlags(flags []plugin.Flag) error {
	for _, f := range flags {
		raw, err := json.Marshal(f.Default)
		if err != nil {
			return fmt.Errorf("encoding the flag %s: %w", f.Name, err)
		}
		r.Flags = append(r.Flags, createFlag{f.Name, f.Usage, f.EnvVar, f.Kind, raw})
	}
	return nil
}

// flags are the create flags, with defaults of the types that their kinds say.
func (r *result) flags() ([]plugin.Flag, error) {
	out := make([]plugin.Flag, 0, len(r.Flags))
	for _, f := range r.Flags {
		value, err := defaultOf(f)
		if err != nil {
			return nil, fmt.Errorf("the default of the flag %.100q is not readable: %w", f.Name, err)
		}
		out = append(out, plugin.Flag{Name: f.Name, Usage: f.Usage, EnvVar: f.EnvVar, Kind: f.Kind, Default: value})
	}
	return out, nil
}

func defaultOf(f createFlag) (any, error) {
	switch f.Kind {
	case plugin.String:
		return decode[string](f.Default)
	case plugin.StringSlice:
		return decode[[]string](f.Default)
	case plugin.Int:
		return decode[int](f.Default)
	case plugin.Bool:
		return decode[bool](f.Default)
	}
	return nil, fmt.Errorf("kind %.100q is unknown", f.Kind)
}

func decode[T any](raw []byte) (any, error) {
	var out T
	err := json.Unmarshal(raw, &out)
	return out, err
}
