// This server's OpenAI routes, as the chat page uses them.

export class ApiError extends Error {
  /** status 0: no answer at all */
  constructor(message, status, retryAfter) {
    super(message);
    this.status = status;
    this.retryAfter = retryAfter;
  }
}

async function errorOf(response) {
  const text = await response.text();
  let message = text.slice(0, 1000) || response.statusText;
  try {
    const body = JSON.parse(text);
    message = body.error?.message ?? body.message ?? message;
  } catch { /* not JSON: shown as it is */ }
  return new ApiError(message, response.status, Number(response.headers.get("Retry-After")) || 2);
}

/** Throws ApiError, or what `signal` was aborted with. */
async function request(path, key, options = {}) {
  const headers = {...options.headers};
  if (key) headers.Authorization = `Bearer ${key}`;
  let response;
  try {
    response = await fetch(path, {...options, headers, cache: "no-store", credentials: "omit"});
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw new ApiError("The server cannot be reached.", 0, 3);
  }
  if (!response.ok) throw await errorOf(response);
  return response;
}

/** Names of the models that this server has. */
export async function models(key) {
  const list = await (await request("v1/models", key)).json();
  return list.data.map((model) => model.id);
}

/** The data of server-sent events, however the bytes were cut. */
async function* events(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const {value, done} = await reader.read();
    if (done) return;
    const lines = (rest + value).split(/\r?\n/);
    rest = lines.pop();
    for (const line of lines) if (line.startsWith("data:")) yield line.slice(5).trim();
  }
}

/** Pieces of an answer: {content, reasoning, finish, usage}, each of which may be missing. */
export async function* complete(body, key, signal) {
  const response = await request("v1/chat/completions", key, {
    method: "POST", signal, headers: {"Content-Type": "application/json"},
    body: JSON.stringify({...body, stream: true, stream_options: {include_usage: true}}),
  });
  try {
    for await (const data of events(response.body)) {
      if (data === "[DONE]") return;
      const chunk = JSON.parse(data);
      if (chunk.error) throw new ApiError(chunk.error.message ?? String(chunk.error), 500);
      const choice = chunk.choices?.[0];
      yield {content: choice?.delta?.content, reasoning: choice?.delta?.reasoning_content,
        finish: choice?.finish_reason, usage: chunk.usage};
    }
  } catch (error) {
    if (signal.aborted || error instanceof ApiError) throw error;
    throw new ApiError("The connection broke before the answer was complete.", 0, 3);
  }
  throw new ApiError("The connection ended before the answer was complete.", 0, 3);
}
