// Echoes: an endpoint tells whoever asks which process holds its port; that is no secret, and proves life alone.

package transport

import "github.com/forgeyard/forgeyard/transport/echo"

// answerEchoes answers the packets of the port that are not QUIC's, until Close.
func (e *Endpoint) answerEchoes() {
	buf := make([]byte, 128)
	for {
		n, from, err := e.tr.ReadNonQUICPacket(e.ctx, buf)
		if err != nil {
			return
		}
		if answer, ok := echo.Answer(buf[:n], e.cfg.Hello().Incarnation); ok {
			_, _ = e.tr.WriteTo(answer, from) // a lost answer is silence, which proves nothing
		}
	}
}
