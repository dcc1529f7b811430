package plans

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestValidate(t *testing.T) {
	named := func(name string) CommonInstruction { return CommonInstruction{Name: name} }
	tests := map[string]struct {
		plan Plan
		want []string
	}{
		"empty": {},
		"complete": {plan: Plan{
			Files: []File{
				{Path: "/etc/a", Content: "YQ==", Permissions: "644"},
				{Path: "/etc/d", Directory: true, Content: "ignored"},
				{Path: "/etc/gone", Action: ActionDelete, Permissions: "ignored", Content: "ignored"},
				{Path: "/etc/s", Permissions: "4755", UID: -1, GID: -1, Action: "upsert"},
				{Path: `C:\etc\a`},
			},
			Instructions:         []Instruction{{}, {CommonInstruction: CommonInstruction{Env: []string{"A=", `$env:B="c"`}}}},
			PeriodicInstructions: []PeriodicInstruction{{CommonInstruction: named("p")}},
			Probes:               map[string]Probe{"a": {HTTPGet: HTTPGetAction{URL: "https://127.0.0.1:6443/readyz"}}},
		}},
		"error": {plan: Plan{Error: "no join URL"}, want: []string{`error: the plan is incomplete: no join URL`}},
		"files": {
			plan: Plan{Files: []File{
				{},
				{Path: "etc/a"},
				{Path: "/a", Permissions: "0o644"},
				{Path: "/a", Permissions: "rw"},
				{Path: "/a", Permissions: "10000"},
				{Path: "/a", Content: "YQ"},
				{Path: "/a", UID: -2, GID: -3},
				{Path: "/a/..", Action: ActionDelete, Directory: true},
				{Path: "/a\x00b"},
			}},
			want: []string{
				`files[0].path: must not be empty`,
				`files[1].path: must be absolute, got "etc/a"`,
				`files[2].permissions: must be octal digits, got "0o644": write 0644`,
				`files[3].permissions: must be octal digits such as 0644, got "rw"`,
				`files[4].permissions: must be at most 07777, got "10000"`,
				`files[5].content: must be standard base64 with padding: illegal base64 data at input byte 0`,
				`files[6].uid: must be at least -1, got -2`,
				`files[6].gid: must be at least -1, got -3`,
				`files[7].path: must not be the root of the file system, got "/a/.."`,
				`files[8].path: must not contain a NUL byte, got "/a\x00b"`,
			},
		},
		"instructions": {
			plan: Plan{
				Instructions: []Instruction{
					{SaveOutput: true},
					{CommonInstruction: CommonInstruction{Image: "a b", Env: []string{"A=1", "secret", "=x"}, Args: []string{"\x00"}, Command: "\x00"}},
				},
				PeriodicInstructions: []PeriodicInstruction{
					{CommonInstruction: named("p"), PeriodSeconds: -1}, {}, {CommonInstruction: named("p")},
				},
			},
			want: []string{
				`instructions[0].name: must not be empty: saveOutput reports the output under it`,
				`instructions[1].image: must not contain white space, got "a b"`,
				`instructions[1].env[1]: must have the form NAME=value`,
				`instructions[1].env[2]: must have the form NAME=value`,
				`instructions[1].args[0]: must not contain a NUL byte`,
				`instructions[1].command: must not contain a NUL byte`,
				`periodicInstructions[0].periodSeconds: must not be negative, got -1`,
				`periodicInstructions[1].name: must not be empty: the outcome is reported under it`,
				`periodicInstructions[2].name: must be unique, periodicInstructions[0] is named "p" too`,
			},
		},
		"probes": {
			plan: Plan{Probes: map[string]Probe{
				"a": {InitialDelaySeconds: -1, TimeoutSeconds: -1, SuccessThreshold: -1, FailureThreshold: -1, HTTPGet: HTTPGetAction{URL: "http://a"}},
				"b": {HTTPGet: HTTPGetAction{URL: "tcp://a", ClientCert: "/c"}},
				"c": {HTTPGet: HTTPGetAction{URL: "http:///readyz"}},
				"d": {HTTPGet: HTTPGetAction{URL: "http://%"}},
			}},
			want: []string{
				`probes["a"].initialDelaySeconds: must not be negative, got -1`,
				`probes["a"].timeoutSeconds: must not be negative, got -1`,
				`probes["a"].successThreshold: must not be negative, got -1`,
				`probes["a"].failureThreshold: must not be negative, got -1`,
				`probes["b"].httpGet.url: must start with http:// or https://`,
				`probes["b"].httpGet: clientCert and clientKey must be set together`,
				`probes["c"].httpGet.url: must have a host`,
				`probes["d"].httpGet.url: must be a URL`,
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var got []string
			if err := test.plan.Validate(); err != nil {
				got = strings.Split(err.Error(), "\n")
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestValidateNeverShowsAnEnvironmentValue(t *testing.T) {
	err := Plan{Instructions: []Instruction{{CommonInstruction: CommonInstruction{Env: []string{"hunter2", "=hunter2"}}}}}.Validate()
	if err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("got %v", err)
	}
}

// TestSeconds: a number that stands for "never" is a long time, and no negative one.
func TestSeconds(t *testing.T) {
	for n, want := range map[int]time.Duration{0: 0, 90: 90 * time.Second, math.MaxInt32: math.MaxInt32 * time.Second} {
		if got := Seconds(n); got != want {
			t.Errorf("%d is %s", n, got)
		}
	}
	if got := Seconds(math.MaxInt); got < 60*365*24*time.Hour || time.Now().Add(got).Before(time.Now()) {
		t.Errorf("the largest number is %s", got)
	}
}
