"""The protocol of the live page: what is no HTTP is refused with the headers of every answer."""

from uvicorn.protocols.http.h11_impl import H11Protocol

from nclab.report.access import HEADERS


class Protocol(H11Protocol):
    """As uvicorn's, which refuses broken requests before an application sees them."""

    def send_400_response(self, msg: str) -> None:
        """One line, and the connection is closed."""
        body = f"{msg}\n".encode("ascii", "replace")
        told = {"Content-Type": "text/plain; charset=utf-8", "Content-Length": str(len(body))}
        lines = [f"{name}: {value}" for name, value in {**told, "Connection": "close"}.items()]
        lines += [f"{name}: {value}" for name, value in HEADERS.items()]
        head = "\r\n".join(["HTTP/1.1 400 Bad Request", *lines, "", ""])
        self.transport.write(head.encode("ascii") + body)
        self.transport.close()
