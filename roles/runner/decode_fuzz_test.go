// Fuzzing of what agents, daemons and clients send: messages, transfer frames, specifications, parameters, headers.

package runner

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster/access"
	"github.com/forgeyard/forgeyard/cluster/config/ron"
	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/roles/artifact"
	"github.com/forgeyard/forgeyard/testkit/corpus"
)

const someLease = "00000000-0000-0000-0000-00000000000a"

// everyMessage is one of each kind.
func everyMessage() map[string]Message {
	code := 3
	return map[string]Message{
		"hello":    {Hello: &Hello{Protocol: ProtocolVersion, Session: "s", Slots: 4, Labels: []string{"linux"}, Build: "v1", Known: []string{someLease}}},
		"answer":   {Answer: &Answer{Lease: someLease, Verdict: Accepted}},
		"beat":     {Beat: &Beat{Seq: 7, Leases: []Progress{{Lease: someLease, Bytes: 9, Work: 2, Note: "waits"}}, Closing: true}},
		"complete": {Complete: &Complete{Lease: someLease, Outcome: Failed, ExitCode: &code, Duration: time.Second, Tail: []byte("x\n"), Reason: "exit status 3", LogBytes: 2}},
		"release":  {Release: &Release{Lease: someLease, Reason: "draining", Started: true}},
		"fetch":    {Transfer: &Transfer{Fetch: &Fetch{Lease: someLease, Digest: "sha256:00"}}},
		"store":    {Transfer: &Transfer{Store: &Store{Lease: someLease, Name: "bin", Path: "out/bin", Size: 5, Digest: "sha256:00"}}},
		"log":      {Transfer: &Transfer{Log: &Log{Lease: someLease}}},
		"welcome":  {Welcome: &Welcome{Node: "n", Link: "l", TTL: time.Minute, Every: 10 * time.Second, Keep: []string{someLease}, Drain: true}},
		"offer": {Offer: &Offer{
			Lease: someLease, Role: fsm.SchedulerLeader, Generation: 1, Epoch: 7, Run: "r", Job: "j", Attempt: 1, Steps: []Step{{Name: "vet", Argv: []string{"go", "vet"}}},
			Env: map[string]string{"A": "b"}, Timeout: time.Hour, Source: "sha256:00", Inputs: []Input{{Job: "a", Name: "bin", Path: "bin", Digest: "sha256:00"}},
			Outputs: []Output{{Name: "bin", Path: "out/bin"}}, LogLimit: 1 << 20,
		}},
		"start": {Start: &Start{Lease: someLease, Granted: true}}, "pulse": {Pulse: &Pulse{Seq: 7, Alive: []string{someLease}}},
		"completed": {Completed: &Completed{Lease: someLease, Accepted: true}}, "cancel": {Cancel: &CancelOrder{Lease: someLease}},
		"goodbye": {Goodbye: &Goodbye{Reason: "stopping"}}, "drain": {Drain: &Drain{On: true}},
	}
}

// rubbish is CBOR that asks for too much.
func rubbish(f *testing.F) {
	corpus.Add(f, "nothing", []byte{})
	corpus.Add(f, "nested", bytes.Repeat([]byte{0xa1, 0x02}, 20))
	corpus.Add(f, "an array of all memory", []byte{0xa1, 0x01, 0xa1, 0x04, 0x9b, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
	corpus.Add(f, "bytes of all memory", []byte{0xa1, 0x05, 0x5b, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
	corpus.Add(f, "indefinite", []byte{0xbf, 0xff})
	corpus.Add(f, "one key twice", []byte{0xa2, 0x01, 0xa0, 0x01, 0xa0})
}

func FuzzDecodeMessage(f *testing.F) {
	for name, m := range everyMessage() {
		b, err := EncodeMessage(m)
		require.NoError(f, err)
		corpus.Add(f, name, b)
	}
	rubbish(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := DecodeMessage(b)
		if err != nil {
			require.Zero(t, m)
			return
		}
		again, err := EncodeMessage(m)
		require.NoError(t, err)
		back, err := DecodeMessage(again)
		require.NoError(t, err)
		require.Equal(t, m, back)
		if malformed(m) == nil {
			for _, lease := range leasesOf(m) {
				require.True(t, validLease(lease), "%q reaches the database", lease)
			}
		}
	})
}

func FuzzDecodeFrame(f *testing.F) {
	for name, fr := range map[string]Frame{
		"ready": {Ready: &Ready{Size: 5, Offset: 3}}, "ack": {Ack: &Ack{Offset: 9}}, "done": {Done: &Done{}}, "data": {Data: []byte("bytes")},
		"refused": {Refused: &Refused{Code: "FY-CAS-001", Reason: "away", Retry: true}}, "chunk": {Chunk: &Chunk{Offset: 1, Data: []byte("line\n")}},
		"end": {End: &End{Size: 5, Digest: "sha256:00"}}, "a negative place": {Chunk: &Chunk{Offset: -1}}, "two at once": {Done: &Done{}, Data: []byte("x")},
	} {
		b, err := EncodeFrame(fr)
		require.NoError(f, err)
		corpus.Add(f, name, b)
	}
	rubbish(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		fr, err := DecodeFrame(b)
		if err != nil {
			require.Zero(t, fr)
			return
		}
		again, err := EncodeFrame(fr)
		require.NoError(t, err)
		back, err := DecodeFrame(again)
		require.NoError(t, err)
		require.Equal(t, fr, back)
	})
}

// A specification means the same in JSON, as clients send it, and in RON, as people write it.
func FuzzRunSpec(f *testing.F) {
	for name, s := range map[string]string{
		"plain": `{"name":"build","jobs":[{"name":"vet","argv":["go","vet"]}]}`,
		"full": `{"name":"r","queue":"q","source":"sha256:0000000000000000000000000000000000000000000000000000000000000000","jobs":[{"name":"a","steps":[{"name":"s","argv":["x","y"]}],` +
			`"env":{"A":"b"},"labels":["b","a","a"],"outputs":[{"name":"o","path":"p/q"}],"priority":-3,"timeout":"90s","attempt_limit":4,"retries":2},{"name":"b","needs":["a"],"argv":["x"]}]}`,
		"cycle": `{"name":"r","jobs":[{"name":"a","needs":["b"],"argv":["x"]},{"name":"b","needs":["a"],"argv":["x"]}]}`, "needs itself": `{"name":"r","jobs":[{"name":"a","needs":["a"],"argv":["x"]}]}`,
		"another case": `{"NAME":"r","jobs":[{"name":"a","argv":["x"]}]}`, "null": `{"name":null,"jobs":null}`, "a name twice": `{"name":"a","name":"b","jobs":[{"name":"a","argv":["x"]}]}`,
		"half a pair": `{"name":"\ud800","jobs":[{"name":"a","argv":["\udc00x"]}]}`, "NUL": `{"name":"a\u0000","jobs":[{"name":"a","argv":["x\u0000"]}]}`, "not UTF-8": "{\"name\":\"\xff\",\"jobs\":[{\"name\":\"a\",\"argv\":[\"\xfe\"]}]}",
		"a path outside": `{"name":"r","jobs":[{"name":"a","argv":["x"],"outputs":[{"name":"..","path":"../x"}]}]}`, "a large number": `{"name":"r","jobs":[{"name":"a","argv":["x"],"priority":1e2}]}`,
		"RON": `(name: "r", jobs: [(name: "a", argv: ["x"], timeout: "1m")])`, "two documents": `{"name":"r","jobs":[]}{}`, "nested": strings.Repeat("[", 2000),
	} {
		corpus.Add(f, name, s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		var viaJSON, viaRON RunSpec
		r := httptest.NewRequest(http.MethodPost, "/v1/runs", strings.NewReader(s))
		jsonErr := access.ReadJSON(httptest.NewRecorder(), r, &viaJSON)
		v, ronErr := ron.Parse("run.ron", []byte(s))
		if ronErr == nil {
			_, ronErr = ron.Decode(v, &viaRON)
		}
		if jsonErr == nil && ronErr == nil && viaJSON.Validate() == nil && viaRON.Validate() == nil {
			require.Equal(t, viaJSON.normal(), viaRON.normal(), "one text, two meanings")
		}
		if jsonErr == nil {
			accepted(t, viaJSON)
		}
		if ronErr == nil {
			accepted(t, viaRON)
		}
	})
}

// accepted checks what follows for a specification that Validate accepts.
func accepted(t *testing.T, s RunSpec) {
	if s.Validate() != nil {
		return
	}
	n := s.normal()
	require.NoError(t, n.Validate())
	require.Equal(t, n, n.normal(), "filled in once")
	b, err := json.Marshal(n)
	require.NoError(t, err)
	var back RunSpec
	require.NoError(t, json.Unmarshal(b, &back))
	again, err := json.Marshal(back.normal())
	require.NoError(t, err)
	require.Equal(t, string(b), string(again))
	require.NotContains(t, string(b), `\u0000`, "PostgreSQL stores no NUL")
	for _, j := range n.Jobs {
		require.True(t, len(j.Steps) > 0 && j.Argv == nil && j.AttemptLimit > j.Retries && j.Timeout > 0, "%+v", j)
		require.NotContains(t, j.Needs, j.Name)
	}
}

func FuzzFilter(f *testing.F) {
	const id = "01M8M7W1DW74Q8ZFNF70DAVE21"
	for name, q := range map[string]string{
		"page": "limit=20&after=" + id, "nothing": "", "lower case": "after=" + strings.ToLower(id), "all": "limit=200&state=failed&queue=q&after=" + id, "limit 0": "limit=0", "a sign": "limit=%2b5",
		"twice": "limit=1&limit=2", "NUL": "queue=%00", "not UTF-8": "after=%ff&queue=%ff", "unknown state": "state=odd", "semicolons": "limit=1;after=x", "a number too large": "limit=99999999999999999999",
	} {
		corpus.Add(f, name, q)
	}
	f.Fuzz(func(t *testing.T, query string) {
		got, err := filterOf(&http.Request{URL: &url.URL{Path: "/v1/runs", RawQuery: query}})
		if err != nil {
			status, _ := access.Explain(err)
			require.Equal(t, http.StatusBadRequest, status)
			return
		}
		require.True(t, got.Limit >= 0 && got.Limit <= MaxList)
		require.True(t, got.Queue == "" || plain(got.Queue, MaxQueue))
		require.Contains(t, []RunState{"", RunRunning, RunSucceeded, RunFailed, RunCancelled}, got.State)
		// Pages are in the order of the ids' text: another spelling would begin somewhere else.
		require.Equal(t, strings.ToUpper(got.After), got.After)
		for _, c := range []byte(got.After) {
			require.True(t, c >= '0' && c <= 'Z')
		}
		for _, text := range []string{url.Values{"o": {query}}.Get("o"), query} {
			if n, err := number(text, "offset", 100); err == nil {
				require.True(t, n >= 0 && n <= 100)
			}
		}
	})
}

func FuzzContentDigest(f *testing.F) {
	d := artifact.DigestOf([]byte("x"))
	b64 := base64.StdEncoding.EncodeToString(d.Bytes())
	for name, s := range map[string]string{
		"sha-256": "sha-256=:" + b64 + ":", "among others": "md5=:AA==:, sha-256=:" + b64 + ":", "another only": "sha-512=:AA==:", "nothing": "", "short": "sha-256=:AA==:", "not base64": "sha-256=:%%:",
		"no end": "sha-256=:" + b64, "URL form": "sha-256=:" + base64.URLEncoding.EncodeToString(d.Bytes()) + ":", "two": "sha-256=:" + b64 + ":,sha-256=:AA==:", "commas": ",,,",
	} {
		corpus.Add(f, name, s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := contentDigest(s)
		if err != nil {
			status, _ := access.Explain(err)
			require.Equal(t, http.StatusBadRequest, status)
			require.True(t, got.IsZero())
			return
		}
		if !got.IsZero() {
			back, err := contentDigest("sha-256=:" + base64.StdEncoding.EncodeToString(got.Bytes()) + ":")
			require.NoError(t, err)
			require.Equal(t, got, back)
		}
	})
}

// What a supervisor is told and what it reports: JSON lines over a pipe.
func FuzzSupervisorLines(f *testing.F) {
	code, grace := 3, time.Second
	line := func(v any) string {
		b, err := json.Marshal(v)
		require.NoError(f, err)
		return string(b) + "\n"
	}
	for name, s := range map[string]string{
		"begin": line(supervisorOrder{Begin: &supervision{Steps: []Step{{Argv: []string{"x"}}}, Env: []string{"A=b"}, Dir: "/d", Deadline: 5}}), "deadline": line(supervisorOrder{Deadline: 9}),
		"ask": line(supervisorOrder{Ask: 4}), "stop": line(supervisorOrder{Stop: &grace}), "alive": line(supervisorReport{Alive: 4}),
		"end": line(supervisorReport{End: &supervisorEnd{Code: &code, Step: "vet", Late: true}}), "cut": line(supervisorOrder{Ask: 4})[:5], "null": "null\n", "nothing": "",
	} {
		corpus.Add(f, name, s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		orders := make(chan supervisorOrder, len(s)+1)
		readOrders(json.NewDecoder(strings.NewReader(s)), orders) // closes: it never waits for what does not come
		for o := range orders {
			b, err := json.Marshal(o)
			require.NoError(t, err)
			var back supervisorOrder
			require.NoError(t, json.Unmarshal(b, &back))
			require.True(t, reflect.DeepEqual(o, back) || o.Begin != nil, "%+v became %+v", o, back)
		}
	})
}
