package render

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"

	"github.com/drover-dev/drover/plans"
)

// The names of the periodic instructions by which an etcd machine tells its address.
const (
	captureAddress = "capture-address"
	etcdName       = "etcd-name"
)

// capturePeriod is the time between two runs, in seconds.
const capturePeriod = 600

// addPeriodic has the first machine of a cluster tell its address where that machine runs nothing but etcd and nothing else tells it:
// such a machine's Node appears only when others have joined it. An agent that says where it is needs none of it.
func (b *builder) addPeriodic() {
	m := b.Machine
	if !m.Init || !m.onlyEtcd() || m.Addressed {
		return
	}
	for _, i := range []struct{ name, script string }{
		// Without the line that is looked for, the instruction fails and is retried soon. The agent may have a proxy, which curl uses for
		// localhost, too.
		{captureAddress, fmt.Sprintf("curl -sf --noproxy '*' --cacert %s/server/tls/server-ca.crt https://localhost:%d/db/info | "+
			"grep clientURLs", b.dataDir, supervisorPort(b.Cluster))},
		{etcdName, fmt.Sprintf("cat %s/server/db/etcd/name", b.dataDir)},
	} {
		b.plan.PeriodicInstructions = append(b.plan.PeriodicInstructions, plans.PeriodicInstruction{
			CommonInstruction: plans.CommonInstruction{Name: i.name, Command: "sh", Args: []string{"-c", i.script}}, PeriodSeconds: capturePeriod,
		})
	}
}

// CapturedAddress is the address that a machine has told by its periodic instructions; empty if it has not.
func CapturedAddress(outputs map[string]plans.PeriodicOutput) string {
	name := strings.TrimSpace(string(outputs[etcdName].Stdout))
	line, _, _ := bytes.Cut(bytes.TrimSpace(outputs[captureAddress].Stdout), []byte("\n"))
	var info struct {
		Members []struct {
			Name       string   `json:"name"`
			ClientURLs []string `json:"clientURLs"`
		} `json:"members"`
	}
	if name == "" || json.Unmarshal(line, &info) != nil {
		return ""
	}
	for _, member := range info.Members {
		if member.Name != name || len(member.ClientURLs) == 0 {
			continue
		}
		if u, err := url.Parse(member.ClientURLs[0]); err == nil {
			return u.Hostname()
		}
	}
	return ""
}
