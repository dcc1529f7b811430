package plans

import (
	"strings"
	"testing"

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
		"error": {plan: Plan{Error: "no join URL"}, want: []string{`error: the plan is not complete: no join URL`}},
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
				`files[0].path: is empty`,
				`files[1].path: "etc/a" is not absolute`,
				`files[2].permissions: "0o644" is not octal digits; write 0644`,
				`files[3].permissions: "rw" is not octal digits; write it like 0644`,
				`files[4].permissions: "10000" has bits beyond 07777`,
				`files[5].content: is not standard base64 with padding: illegal base64 data at input byte 0`,
				`files[6].uid: -2 is less than -1`,
				`files[6].gid: -3 is less than -1`,
				`files[7].path: "/a/.." is the root of the file system`,
				`files[8].path: "/a\x00b" holds a zero byte`,
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
				`instructions[0].name: is empty; saveOutput needs a name to report the output under`,
				`instructions[1].image: "a b" holds white space`,
				`instructions[1].env[1]: is not of the form NAME=value`,
				`instructions[1].env[2]: is not of the form NAME=value`,
				`instructions[1].args[0]: holds a zero byte`,
				`instructions[1].command: holds a zero byte`,
				`periodicInstructions[0].periodSeconds: -1 is negative`,
				`periodicInstructions[1].name: is empty; a periodic instruction needs a name to report under`,
				`periodicInstructions[2].name: "p" is the name of periodicInstructions[0] already`,
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
				`probes["a"].initialDelaySeconds: -1 is negative`,
				`probes["a"].timeoutSeconds: -1 is negative`,
				`probes["a"].successThreshold: -1 is negative`,
				`probes["a"].failureThreshold: -1 is negative`,
				`probes["b"].httpGet.url: starts with neither http:// nor https://`,
				`probes["b"].httpGet: clientCert and clientKey go together`,
				`probes["c"].httpGet.url: names no host`,
				`probes["d"].httpGet.url: is not a URL`,
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
