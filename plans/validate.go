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

const mustNotBeNegative = "must not be negative, got %d"

// Validate returns everything in the plan that no agent can apply, as one error that joins a line per field, each starting with the
// field's path in the plan: `files[2].permissions: ...`. It never quotes the value of an environment variable or a URL.
func (p Plan) Validate() error {
	var errs fieldErrors
	if p.Error != "" {
		errs.add("error", "the plan is incomplete: %s", p.Error)
	}
	for i, file := range p.Files {
		file.validate(&errs, fmt.Sprintf("files[%d]", i))
	}
	for i, instruction := range p.Instructions {
		at := fmt.Sprintf("instructions[%d]", i)
		instruction.validate(&errs, at)
		if instruction.SaveOutput && instruction.Name == "" {
			errs.add(at+".name", "must not be empty: saveOutput reports the output under it")
		}
	}
	names := map[string]int{}
	for i, instruction := range p.PeriodicInstructions {
		at := fmt.Sprintf("periodicInstructions[%d]", i)
		instruction.validate(&errs, at)
		if instruction.PeriodSeconds < 0 {
			errs.add(at+".periodSeconds", mustNotBeNegative, instruction.PeriodSeconds)
		}
		if instruction.Name == "" {
			errs.add(at+".name", "must not be empty: the outcome is reported under it")
			continue
		}
		if first, taken := names[instruction.Name]; taken {
			errs.add(at+".name", "must be unique, periodicInstructions[%d] is named %q too", first, instruction.Name)
			continue
		}
		names[instruction.Name] = i
	}
	for _, name := range slices.Sorted(maps.Keys(p.Probes)) {
		p.Probes[name].validate(&errs, fmt.Sprintf("probes[%q]", name))
	}
	return errors.Join(errs...)
}

// fieldErrors collects errors that start with the path of a field.
type fieldErrors []error

func (e *fieldErrors) add(at, format string, args ...any) {
	*e = append(*e, fmt.Errorf("%s: %s", at, fmt.Sprintf(format, args...)))
}

func (f File) validate(errs *fieldErrors, at string) {
	switch {
	case f.Path == "":
		errs.add(at+".path", "must not be empty")
	case strings.ContainsRune(f.Path, 0):
		errs.add(at+".path", "must not contain a NUL byte, got %q", f.Path)
	case !path.IsAbs(f.Path) && !isWindowsPath(f.Path):
		errs.add(at+".path", "must be absolute, got %q", f.Path)
	case path.Clean(f.Path) == "/":
		errs.add(at+".path", "must not be the root of the file system, got %q", f.Path)
	}
	if f.UID < -1 {
		errs.add(at+".uid", "must be at least -1, got %d", f.UID)
	}
	if f.GID < -1 {
		errs.add(at+".gid", "must be at least -1, got %d", f.GID)
	}
	if f.Action == ActionDelete {
		return
	}
	if _, err := f.Mode(); err != nil {
		errs.add(at+".permissions", "%s", err)
	}
	if !f.Directory {
		if _, err := base64.StdEncoding.DecodeString(f.Content); err != nil {
			errs.add(at+".content", "must be standard base64 with padding: %s", err)
		}
	}
}

func isWindowsPath(p string) bool {
	return len(p) >= 3 && p[1] == ':' && (p[2] == '\\' || p[2] == '/')
}

// Mode is Permissions as the twelve bits of chmod(2): 0600 for a file and 0755 for a directory where they are empty. It fails when they are
// no octal digits.
func (f File) Mode() (uint32, error) {
	if f.Permissions == "" {
		if f.Directory {
			return 0o755, nil
		}
		return 0o600, nil
	}
	mode, err := strconv.ParseUint(f.Permissions, 8, 32)
	if err != nil {
		if digits, ok := strings.CutPrefix(strings.ToLower(f.Permissions), "0o"); ok {
			return 0, fmt.Errorf("must be octal digits, got %q: write 0%s", f.Permissions, digits)
		}
		return 0, fmt.Errorf("must be octal digits such as 0644, got %q", f.Permissions)
	}
	if mode > 0o7777 {
		return 0, fmt.Errorf("must be at most 07777, got %q", f.Permissions)
	}
	return uint32(mode), nil
}

func (c CommonInstruction) validate(errs *fieldErrors, at string) {
	if strings.ContainsAny(c.Image, " \t\r\n") {
		errs.add(at+".image", "must not contain white space, got %q", c.Image)
	}
	for i, env := range c.Env {
		// The value may be a secret and is left out of the message.
		if name, _, found := strings.Cut(env, "="); !found || name == "" {
			errs.add(fmt.Sprintf("%s.env[%d]", at, i), "must have the form NAME=value")
		} else if strings.ContainsRune(env, 0) {
			errs.add(fmt.Sprintf("%s.env[%d]", at, i), "must not contain a NUL byte")
		}
	}
	for i, arg := range c.Args {
		if strings.ContainsRune(arg, 0) {
			errs.add(fmt.Sprintf("%s.args[%d]", at, i), "must not contain a NUL byte")
		}
	}
	if c.TimeoutSeconds < 0 {
		errs.add(at+".timeoutSeconds", mustNotBeNegative, c.TimeoutSeconds)
	}
	if strings.ContainsRune(c.Command, 0) {
		errs.add(at+".command", "must not contain a NUL byte")
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
			errs.add(at+"."+number.field, mustNotBeNegative, number.value)
		}
	}
	get := at + ".httpGet"
	target, err := url.Parse(p.HTTPGet.URL)
	switch {
	case err != nil:
		// The error would quote the URL, which may hold a password.
		errs.add(get+".url", "must be a URL")
	case target.Scheme != "http" && target.Scheme != "https":
		errs.add(get+".url", "must start with http:// or https://")
	case target.Host == "":
		errs.add(get+".url", "must have a host")
	}
	if (p.HTTPGet.ClientCert == "") != (p.HTTPGet.ClientKey == "") {
		errs.add(get, "clientCert and clientKey must be set together")
	}
}
