// forgeyard run artifacts: what the jobs of a run have left behind, listed or fetched.

package cli

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/forgeyard/forgeyard/cmd/forgeyard/cli/client"
	"github.com/forgeyard/forgeyard/roles/artifact"
	"github.com/forgeyard/forgeyard/roles/runner"
)

// Fetched is an artifact that was downloaded, and where it went.
type Fetched struct {
	runner.Artifact
	To string `json:"to"`
}

// FetchedDocument is what run artifacts prints after downloading.
type FetchedDocument struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Run        string    `json:"run"`
	Artifacts  []Fetched `json:"artifacts"`
}

const (
	downloadQuiet = 30 * time.Second
	stdoutName    = "-"
)

func (a *app) artifactsCommand() *cobra.Command {
	var out, file string
	c := &cobra.Command{
		Use: "artifacts RUN [JOB [NAME]]", Short: "List or fetch what the jobs of a run left behind", Args: args(1, 3, "RUN [JOB [NAME]]"),
		Long: "List what the jobs of a run left behind. With --out they are fetched, verified and unpacked: one artifact into the\n" +
			"directory, those of a job into DIR/NAME, those of a run into DIR/JOB/NAME. --file keeps one as it is stored, a tar in zstd.",
		Example:           "  forgeyard run artifacts 01JDVW\n  forgeyard run artifacts 01JDVW build binary --out bin",
		ValidArgsFunction: a.completeRunJob,
		RunE: func(c *cobra.Command, given []string) error {
			switch {
			case out != "" && file != "":
				return usagef("leave one out", "--out and --file exclude each other")
			case file != "" && len(given) != 3:
				return usagef("usage: forgeyard run artifacts RUN JOB NAME --file FILE", "--file takes one artifact")
			}
			id, err := a.runID(c.Context(), given[0])
			if err != nil {
				return err
			}
			found, err := a.artifactsOf(c.Context(), id, given[1:])
			if err != nil {
				return err
			}
			if out == "" && file == "" {
				return a.print(artifactsResult(found))
			}
			doc, err := a.fetch(c.Context(), id, found, func(x runner.Artifact) string {
				return filepath.Join(out, subdirectory(x, len(given)))
			}, file)
			if err != nil {
				return err
			}
			if file == stdoutName {
				return nil
			}
			return a.print(fetchedResult(doc))
		},
	}
	c.Flags().StringVar(&out, "out", "", "fetch and unpack into this `directory`")
	c.Flags().StringVar(&file, "file", "", "fetch one artifact into this new `file`, - for standard output")
	return c
}

// subdirectory is where an artifact goes below --out: the less was named, the deeper.
func subdirectory(x runner.Artifact, named int) string {
	parts := []string{plainName(x.Job), plainName(x.Name)}
	return filepath.Join(parts[min(named, 3)-1:]...)
}

// plainName makes one component of a path of a name that others chose.
func plainName(name string) string {
	s := url.PathEscape(name)
	if strings.Trim(s, ".") == "" {
		return strings.ReplaceAll(s, ".", "%2E")
	}
	return s
}

// artifactsOf lists the artifacts of a run, of a job, or the one that is named.
func (a *app) artifactsOf(ctx context.Context, run string, named []string) (l runner.ArtifactListDocument, err error) {
	if err := a.get(ctx, runPath(run)+"/artifacts", &l); err != nil || len(named) == 0 {
		return l, err
	}
	l.Artifacts = slices.DeleteFunc(l.Artifacts, func(x runner.Artifact) bool {
		return x.Job != named[0] || len(named) > 1 && x.Name != named[1]
	})
	if len(l.Artifacts) == 0 {
		return l, usagef("list what it has: forgeyard run artifacts "+run, "run %s has no artifact %s", run, strings.Join(named, "/"))
	}
	return l, nil
}

func artifactsResult(l runner.ArtifactListDocument) result {
	var names []string
	for _, x := range l.Artifacts {
		names = append(names, "artifact/"+x.Job+"/"+x.Name)
	}
	return result{doc: l, names: names, draw: func(p *painter) {
		cols := []column{
			{head: "JOB"}, {head: "NAME"}, {head: "PATH", drop: 2}, {head: "SIZE"}, {head: "MADE", drop: 1}, {head: "ATTEMPT", wide: true}, {head: "DIGEST", wide: true},
		}
		var rows [][]cell
		for _, x := range l.Artifacts {
			rows = append(rows, cells(x.Job, x.Name, x.Path, bytesText(x.Size), stamp(x.At), fmt.Sprint(x.Attempt), x.Digest))
		}
		p.table(cols, rows)
	}}
}

func fetchedResult(d FetchedDocument) result {
	var names []string
	for _, x := range d.Artifacts {
		names = append(names, "artifact/"+x.Job+"/"+x.Name)
	}
	return result{doc: d, names: names, draw: func(p *painter) {
		for _, x := range d.Artifacts {
			p.line("%s/%s -> %s  (%s, verified)", x.Job, x.Name, x.To, bytesText(x.Size))
		}
	}}
}

// fetch downloads artifacts, each verified before anything of it is put in place.
func (a *app) fetch(ctx context.Context, run string, l runner.ArtifactListDocument, dir func(runner.Artifact) string, file string) (FetchedDocument, error) {
	doc := FetchedDocument{APIVersion: apiVersion, Kind: "ArtifactDownload", Run: run, Artifacts: []Fetched{}}
	c, err := a.client(ctx)
	if err != nil {
		return doc, err
	}
	for _, x := range l.Artifacts {
		to := file
		if file == "" {
			to = dir(x)
		}
		if err := a.fetchOne(ctx, c, run, x, to, file == ""); err != nil {
			return doc, fmt.Errorf("%s/%s: %w", x.Job, x.Name, err)
		}
		doc.Artifacts = append(doc.Artifacts, Fetched{Artifact: x, To: to})
	}
	return doc, nil
}

func (a *app) fetchOne(ctx context.Context, c *client.Client, run string, x runner.Artifact, to string, unpack bool) (err error) {
	where := filepath.Dir(to)
	if to == stdoutName {
		where = ""
	} else if err := os.MkdirAll(where, 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(where, ".forgeyard-fetch-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(f.Name())) }()
	if err := download(ctx, c, run, x, f); err != nil {
		return err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	switch {
	case unpack:
		_, err = artifact.UnpackZstd(ctx, f, to, artifact.Limits{})
		return err
	case to == stdoutName:
		_, err = io.Copy(a.io.Out, f)
		return err
	}
	if err := os.Link(f.Name(), to); errors.Is(err, fs.ErrExist) {
		return &refusal{message: to + " exists and is not replaced", hint: "choose another file with --file"}
	} else if err != nil {
		return err
	}
	return os.Chmod(to, 0o644)
}

// download reads an artifact into f, from the beginning at the next daemon when
// one is lost, and checks that it is the one that was listed.
func download(ctx context.Context, c *client.Client, run string, x runner.Artifact, f *os.File) error {
	path := fmt.Sprintf("%s/jobs/%s/artifacts/%s", runPath(run), url.PathEscape(x.Job), url.PathEscape(x.Name))
	return c.Follow(ctx, client.Stream{
		Quiet: downloadQuiet, Patience: pollPatience,
		Request: func() (string, url.Values, http.Header) { return path, nil, nil },
		Read: func(_ *http.Response, r io.Reader) error {
			if _, err := f.Seek(0, io.SeekStart); err != nil {
				return err
			}
			if err := f.Truncate(0); err != nil {
				return err
			}
			hash := sha256.New()
			n, err := io.Copy(io.MultiWriter(f, hash), io.LimitReader(r, x.Size+1))
			if err != nil {
				return err
			}
			if got := artifact.Digest(hash.Sum(nil)).String(); got != x.Digest {
				return artifact.ErrMismatch.Because("what came, %s, has the digest %s and not %s", bytesText(n), got, x.Digest)
			}
			return nil
		},
	})
}
