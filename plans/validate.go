package plans

import (
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Validate reports everything in the plan that no agent could carry out, as one error that joins a line per field, each starting
// with the field's place in the plan: `files[2].permissions: ...`.
func (p Plan) Validate() error {
	var errs fieldErrors
	if p.Error != "" {
		errs.add("error", "the plan is not complete: %s", p.Error)
	}
	for i, file := range p.Files {
		file.validate(&errs, fmt.Sprintf("files[%d]", i))
	}
	for i, instruction := range p.Instructions {
		at := fmt.Sprintf("instructions[%d]", i)
		instruction.validate(&errs, at)
		if instruction.SaveOutput && instruction.Name == "" {
			errs.add(at+".name", "is empty; saveOutput needs a name to report the output under")
		}
	}
	names := map[string]int{}
	for i, instruction := range p.PeriodicInstructions {
		at := fmt.Sprintf("periodicInstructions[%d]", i)
		instruction.validate(&errs, at)
		if instruction.PeriodSeconds < 0 {
			errs.add(at+".periodSeconds", "%d is negative", instruction.PeriodSeconds)
		}
		if instruction.Name == "" {
			errs.add(at+".name", "is empty; a periodic instruction needs a name to report under")
			continue
		}
		if first, taken := names[instruction.Name]; taken {
			errs.add(at+".name", "%q is the name of periodicInstructions[%d] already", instruction.Name, first)
			continue
		}
		names[instruction.Name] = i
	}
	for _, name := range slices.Sorted(maps.Keys(p.Probes)) {
		p.Probes[name].validate(&errs, fmt.Sprintf("probes[%q]", name))
	}
	return errors.Join(errs...)
}

// fieldErrors collects errors that start with the place of a field.
type fieldErrors []error

func (e *fieldErrors) add(at, format string, args ...any) {
	*e = append(*e, fmt.Errorf("%s: %s", at, fmt.Sprintf(format, args...)))
}

func (f File) validate(errs *fieldErrors, at string) {
	switch {
	case f.Path == "":
		errs.add(at+".path", "is empty")
	case strings.ContainsRune(f.Path, 0):
		errs.add(at+".path", "%q holds a zero byte", f.Path)
	case !path.IsAbs(f.Path) && !isWindowsPath(f.Path):
		errs.add(at+".path", "%q is not absolute", f.Path)
	case path.Clean(f.Path) == "/":
		errs.add(at+".path", "%q is the root of the file system", f.Path)
	}
	if f.UID < -1 {
		errs.add(at+".uid", "%d is less than -1", f.UID)
	}
	if f.GID < -1 {
		errs.add(at+".gid", "%d is less than -1", f.GID)
	}
	if f.Action == ActionDelete {
		return
	}
	if _, err := f.Mode(); err != nil {
		errs.add(at+".permissions", "%s", err)
	}
	if !f.Directory {
		if _, err := base64.StdEncoding.DecodeString(f.Content); err != nil {
			errs.add(at+".content", "is not standard base64 with padding: %s", err)
		}
	}
}

func isWindowsPath(p string) bool {
	return len(p) >= 3 && p[1] == ':' && (p[2] == '\\' || p[2] == '/')
}

// Mode is the mode that Permissions ask for, as the twelve bits of chmod(2), with the default of files or directories where they are
// empty.
func (f File) Mode() (uint32, error) {
	if f.Permissions == "" {
		if f.Directory {
			return 0o755, nil
		}
		return 0o600, nil
	}
	mode, err := strconv.ParseUint(f.Permissions, 8, 32)
	if err != nil {
		if digits := strings.TrimPrefix(strings.ToLower(f.Permissions), "0o"); digits != strings.ToLower(f.Permissions) {
			return 0, fmt.Errorf("%q is not octal digits; write 0%s", f.Permissions, digits)
		}
		return 0, fmt.Errorf("%q is not octal digits; write it like 0644", f.Permissions)
	}
	if mode > 0o7777 {
		return 0, fmt.Errorf("%q has bits beyond 07777", f.Permissions)
	}
	return uint32(mode), nil
}

func (c CommonInstruction) validate(errs *fieldErrors, at string) {
	if strings.ContainsAny(c.Image, " \t\r\n") {
		errs.add(at+".image", "%q holds white space", c.Image)
	}
	for i, env := range c.Env {
		// The value may be a secret and is left out of the message.
		if name, _, found := strings.Cut(env, "="); !found || name == "" {
			errs.add(fmt.Sprintf("%s.env[%d]", at, i), "is not of the form NAME=value")
		} else if strings.ContainsRune(env, 0) {
			errs.add(fmt.Sprintf("%s.env[%d]", at, i), "holds a zero byte")
		}
	}
	for i, arg := range c.Args {
		if strings.ContainsRune(arg, 0) {
			errs.add(fmt.Sprintf("%s.args[%d]", at, i), "holds a zero byte")
		}
	}
	if c.TimeoutSeconds < 0 {
		errs.add(at+".timeoutSeconds", "%d is negative; write the seconds after which it is ended, or 0 for the agent's own limit", c.TimeoutSeconds)
	}
	if strings.ContainsRune(c.Command, 0) {
		errs.add(at+".command", "holds a zero byte")
	}
}

func (p Probe) validate(errs *fieldErrors, at string) {
	for _, number := range []struct {
		field string
		value int
	}{
		{"initialDelaySeconds", p.InitialDelaySeconds},
		{"timeoutSeconds", p.TimeoutSeconds},
		{"successThreshold", p.SuccessThreshold},
		{"failureThreshold", p.FailureThreshold},
	} {
		if number.value < 0 {
			errs.add(at+"."+number.field, "%d is negative", number.value)
		}
	}
	get := at + ".httpGet"
	target, err := url.Parse(p.HTTPGet.URL)
	switch {
	case err != nil:
		// What is wrong with it would quote it, and a URL may hold a password.
		errs.add(get+".url", "is not a URL")
	case target.Scheme != "http" && target.Scheme != "https":
		errs.add(get+".url", "starts with neither http:// nor https://")
	case target.Host == "":
		errs.add(get+".url", "names no host")
	}
	if (p.HTTPGet.ClientCert == "") != (p.HTTPGet.ClientKey == "") {
		errs.add(get, "clientCert and clientKey go together")
	}
}
