package render

import (
	"bytes"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/drover-dev/drover/hub/plan/operation"
	"github.com/drover-dev/drover/plans"
)

// serverTokenSh is handed to sh with the instruction, as encryptionKeysSh is.
//
//go:embed scripts/server-token.sh
var serverTokenSh string

// tokenPoll is the time between two looks at a server's token.
const tokenPoll = 2 * time.Second

// agePasswordsSh makes a server's file of passwords older than the one in the cluster's data, so that the server takes that one when it
// starts. One that was started with the old token while the data has the new one has written the file again, and refuses to start then.
const agePasswordsSh = `[ ! -e "$1" ] || touch -t 200001010000 "$1"`

// passwordsFile is the file of a server with the passwords of servers and agents.
func (t *taskBuilder) passwordsFile() string { return t.dataDir + "/server/cred/passwd" }

// configureToken has a machine read the tokens of its configuration when it starts next.
func (t *taskBuilder) configureToken(name string) plans.Instruction {
	if !t.Machine.server() {
		return t.nothing(name)
	}
	return t.script(name, agePasswordsSh, t.passwordsFile())
}

// serverToken runs a step of the script. The tokens are in its environment, which agents treat as a secret.
func (t *taskBuilder) serverToken(name, step, token, agent string) plans.Instruction {
	names := t.Cluster.names()
	url := fmt.Sprintf("%s/v1-%s/token", t.supervisorURL(), names.Runtime)
	// What is known of a token outlives the operation: another one may go on with the same token.
	state := fmt.Sprintf("%s/operations/token-%.16s", t.provisioningDir(), hexOf(token))
	return plans.Instruction{CommonInstruction: plans.CommonInstruction{
		Name: name, Command: "/bin/sh", Args: []string{"-c", serverTokenSh, "server-token", step, state,
			seconds(operation.TokenTimeout - scriptMargin), seconds(tokenPoll), t.dataDir + "/server/token",
			t.dataDir + "/server/tls/server-ca.crt", url, t.passwordsFile()},
		Env:            append(t.distributionEnv(), "NEW_TOKEN="+token, "NEW_AGENT_TOKEN="+agent),
		TimeoutSeconds: int(operation.TokenTimeout / time.Second),
	}, SaveOutput: true}
}

// withTokens replaces the tokens in the configuration file of a plan. A file that is not the hub's stays as it is.
func (t *taskBuilder) withTokens(files []plans.File) []plans.File {
	files = slices.Clone(files)
	for i, f := range files {
		if f.Path != t.configPath() || f.Action == plans.ActionDelete {
			continue
		}
		content, err := base64.StdEncoding.DecodeString(f.Content)
		if err != nil {
			continue
		}
		config := args{}
		decoder := json.NewDecoder(bytes.NewReader(content))
		decoder.UseNumber()
		if decoder.Decode(&config) != nil {
			continue
		}
		t.builder.args = config
		t.addTokens()
		files[i].Content = base64.StdEncoding.EncodeToString(t.encodeArgs())
	}
	return files
}
